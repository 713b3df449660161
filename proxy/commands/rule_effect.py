"""What a proposed rule would do beside a policy: recorded calls decided again, and what it would let through."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.commands.options import trail_settings
from proxy.commands.policy_prove import say_replay, say_verdict
from proxy.commands.time_format import parse_age
from proxy.errors import PolicyError
from proxy.policy.load import load_sources, load_text
from proxy.policy.merged_file import merged_values
from proxy.policy_learning.proof import prove
from proxy.redact import builtin
from proxy.system import run_file
from proxy.system.package_data import profile_file

if TYPE_CHECKING:
    from proxy.config import Settings
    from proxy.core.model import JsonObject
    from proxy.policy.load import PolicySource


def say_effect(settings: Settings, found: JsonObject, policy: Path | None, since: str, *, as_json: bool) -> None:
    """Print both for a proposal, as `policy diff --replay --prove` does. Raises PolicyError where it does not load."""
    before = _in_force(settings) if policy is None else load_sources(policy, builtin())
    proposed = load_text(str(found["text"]), "proposal", builtin())
    taken = {rule.id for source in before for rule in source.content.rules}
    if twice := [rule.id for rule in proposed.content.rules if rule.id in taken]:
        raise PolicyError(f"the policy has a rule {twice[0]!r} already; is this one part of it by now?")
    after = (*before, proposed)
    values = [merged_values(one, with_defaults=True) for one in (before, after)]
    trail = trail_settings(settings.postgres, settings.state_dir)
    say_replay(after, trail, time.time() - parse_age(since), as_json=as_json)
    say_verdict(prove(before, after, (values[0], values[1])), as_json=as_json)


def _in_force(settings: Settings) -> tuple[PolicySource, ...]:
    """Return the policy of the proxy that runs, or of the settings where none does. Raises PolicyError."""
    running = run_file.read(settings.state_dir)
    if running is None:
        return load_sources(settings.policy, builtin(), also=settings.profile_files)
    profile = None if running.profile is None else profile_file(running.profile)
    path = Path(running.policy)
    return load_sources(path, builtin(), also=() if profile in (None, path) else (profile,))
