"""The section `sandbox:` of a policy: which profile holds for which local server. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.policy.globs import compile_globs
from proxy.policy.text import fold
from proxy.sandbox.profile import SandboxProfile, merge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MODES: Final = ("learn", "shadow", "enforce")
_VIOLATIONS: Final = ("tell", "withhold", "end")


class CompiledSandboxes:
    """The profiles of a policy by server; false where there are none."""

    def __init__(self, sections: Iterable[tuple[str, SandboxProfile]] = ()) -> None:
        self.sections = tuple(sections)
        self._tests = [(compile_globs([glob]), profile) for glob, profile in self.sections]

    def __bool__(self) -> bool:
        return bool(self.sections)

    def for_server(self, server: str) -> SandboxProfile | None:
        """Return the profile of a server; None where the policy has none.

        Where several fit, their lists add up, and the strictest mode and on_violation hold: a file that is added to a
        policy cannot switch off the sandbox that another one asks for.
        """
        names = (server, fold(server).strip())
        fitting = [profile for test, profile in self._tests if any(map(test, names))]
        return combined(fitting) if fitting else None


def combined(profiles: Sequence[SandboxProfile]) -> SandboxProfile:
    """Return what several profiles of one server are together."""
    modes = [profile.mode or "enforce" for profile in profiles]
    violations = [profile.violation for profile in profiles]
    return merge(profiles).model_copy(
        update={"mode": max(modes, key=_MODES.index), "on_violation": max(violations, key=_VIOLATIONS.index)}
    )


def only_recording(sections: dict[str, SandboxProfile]) -> dict[str, SandboxProfile]:
    """Return profiles that refuse nothing, for a policy file that only records."""
    return {
        name: profile.model_copy(update={"mode": "shadow"}) if profile.enforced else profile
        for name, profile in sections.items()
    }
