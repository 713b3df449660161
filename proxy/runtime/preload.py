"""Loads what takes longest to load before anything serves: the policy, its detectors, and the SQL statements."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from proxy.fleet.membership import MembershipFile
from proxy.injection import prepare as prepare_injection
from proxy.policy.reloader import LivePolicy
from proxy.redact import builtin
from proxy.redact.hyperscan_db import AVAILABLE
from proxy.store.queries import Queries
from proxy.system import log_setup
from proxy.system.secret_files import FileCache, SealedCache, read_or_make_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from proxy.config import Settings
    from proxy.fleet.open_state import Fleet
    from proxy.policy.decide import CompiledPolicy
    from proxy.redact.reloader import LiveMasker
    from proxy.rollout.pushed_policy import PushedPolicy

MASK_KEY_BYTES = 32
CACHE_KEY_BYTES = 32
CACHE = "cache"


@dataclass(frozen=True, slots=True)
class Preloaded:
    """What is expensive to load and safe to share over a fork: no thread, no connection, no event loop."""

    policy: LivePolicy
    masker: LiveMasker
    fleet: Fleet | None = None
    pushed: PushedPolicy | None = None  # where the policy comes from, unless from files


def open_masker(state_dir: Path) -> LiveMasker:
    from proxy.redact.reloader import LiveMasker  # noqa: PLC0415  slow to import: `interlock run` has a server to start

    key = read_or_make_key(state_dir / "keys" / "mask.key", MASK_KEY_BYTES)
    return LiveMasker(key, cache=FileCache(state_dir / CACHE))


def preload(
    settings: Settings,
    home: str | None = None,
    *,
    whole: bool = False,
    read: Callable[[CompiledPolicy], object] = lambda _: None,
) -> Preloaded:
    """Load the policy, compile its detectors and read the SQL statements. Raises ConfigError or PolicyError.

    `home` is the home of whoever runs the server, where it is known. `whole`: all that a fleet shares is read anew.
    `read` is called with each policy that is good, before its detectors are compiled.
    """
    Queries.load_all()
    # First: it brings the fleet's keys into the folder, which all that follows reads.
    fleet = _start_fleet(settings, whole=whole)
    masker, parsed = cache(lambda: open_masker(settings.state_dir)), policy_cache(settings)
    pushed = None
    if settings.policy_source == "pushed":
        from proxy.runtime.pushed_start import open_pushed  # noqa: PLC0415  for those who push

        pushed = open_pushed(settings, parsed, home)
    policy = LivePolicy(
        pushed or settings.policy,
        prepare=lambda policy: _prepare(policy, masker, settings.state_dir, read),
        book=builtin(),
        parsed=parsed,
        home=home,
        also=settings.profile_files,
    )
    return Preloaded(policy, masker(), fleet, pushed)


def is_first_start(settings: Settings) -> bool:
    """Return whether all has to be compiled, from files that are here."""
    is_local = settings.policy_source != "pushed" and _is_alone(settings)
    return is_local and AVAILABLE and not (settings.state_dir / CACHE).is_dir()


def fill_caches(settings: Settings) -> None:
    """Load as `preload` does, for what it leaves in the state folder. Raises as it does, but writes no log line."""
    log_setup.silence()
    preload(settings)


def _is_alone(settings: Settings) -> bool:
    shares = settings.postgres is not None or settings.key_encryption_key is not None
    return not shares and MembershipFile(settings.state_dir).read() is None


def _start_fleet(settings: Settings, *, whole: bool) -> Fleet | None:
    if _is_alone(settings):
        return None
    from proxy.fleet.start import start_fleet  # noqa: PLC0415  a third of all that `interlock run` would import

    return start_fleet(settings, os.environ, whole=whole)


def policy_cache(settings: Settings) -> SealedCache:
    """Return the cache of parsed policy files and sandbox profiles."""
    key = read_or_make_key(settings.state_dir / "keys" / "policy-cache.key", CACHE_KEY_BYTES)
    return SealedCache(settings.state_dir / "policy-cache", key)


def _prepare(
    policy: CompiledPolicy,
    open_masker: Callable[[], LiveMasker],
    state_dir: Path,
    read: Callable[[CompiledPolicy], object],
) -> Callable[[], None]:
    """Compile what a policy needs before it is in force; return what puts it in force."""
    read(policy)
    masker = open_masker()
    if not policy.incoming and policy.pins.drift != "tolerant":
        return masker.prepare(policy.detectors)
    # Both take seconds where there is no cache yet, and compiling gives up the interpreter lock: at the same time. The
    # thread has ended when this returns, so workers may be forked.
    with ThreadPoolExecutor(1, "interlock-compiler") as compiler:
        compiled = compiler.submit(prepare_injection, FileCache(state_dir / CACHE))
        in_force = masker.prepare(policy.detectors)
        compiled.result()
    return in_force
