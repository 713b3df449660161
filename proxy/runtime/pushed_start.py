"""Opens the pushed policy for a process: from the replica's file, and from the store where it can be asked."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from proxy.errors import ConfigError, StoreUnavailableError
from proxy.fleet.policy_keys import trusted_path
from proxy.policy.reloader import PolicyFiles
from proxy.redact import builtin
from proxy.rollout.canary import Bounds
from proxy.rollout.keys import trusted_keys
from proxy.rollout.pushed_policy import PushedPolicy
from proxy.rollout.release_file import ReleaseFile
from proxy.runtime.policy_follower import PolicyFollower, ReleaseReader
from proxy.store.open_store import open_database
from proxy.store.rollout_store import Rollout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxy.audit.signing_keys import PublicKey
    from proxy.config import Settings
    from proxy.core.interfaces import EventSink
    from proxy.policy.load import ParsedFiles
    from proxy.store.database import Database

log = structlog.get_logger("interlock.policy")

START_SECONDS: Final = 5.0


def keys_of(settings: Settings) -> Callable[[], Mapping[str, PublicKey]]:
    """Return what reads the keys that are trusted here: each time anew, so that a key can be added or taken away."""
    return partial(trusted_keys, trusted_path(settings))


def open_pushed(settings: Settings, parsed: ParsedFiles | None, home: str | None) -> PushedPolicy:
    """Return where the pushed policy comes from. Raises ConfigError where it cannot be known which one is in force."""
    files = PolicyFiles(settings.policy, book=builtin(), home=home, parsed=parsed, also=settings.profile_files)
    file = ReleaseFile(settings.state_dir)
    pushed = PushedPolicy(file, keys_of(settings), files, book=builtin(), parsed=parsed, home=home)
    _catch_up(settings, file, pushed)
    return pushed


def _catch_up(settings: Settings, file: ReleaseFile, pushed: PushedPolicy) -> None:
    """Read the store once, before anything is decided. Without it, what the file holds stays in force."""
    # In a thread, since the caller may have an event loop. It has ended when this returns, so workers may be forked.
    with ThreadPoolExecutor(1, "interlock-policy") as asker:
        try:
            problem = asker.submit(lambda: asyncio.run(_ask(settings, file, pushed))).result()
        except (StoreUnavailableError, TimeoutError) as error:
            problem = str(error) or "no answer in time"
            if file.read() is not None:
                log.warning("the store of policies does not answer; the last policy known here counts", error=problem)
                return
            raise ConfigError(
                f"policy_source is pushed, the store cannot be asked which version is in force ({problem}), "
                "and none was ever in force here; start when the store answers"
            ) from error
    if problem is not None and file.read() is None:
        raise ConfigError(f"policy_source is pushed, and no version in the store can be used here: {problem}")
    if file.read() is None:
        log.warning("no policy was pushed yet: the files count until one is", policy=str(settings.policy))


async def _ask(settings: Settings, file: ReleaseFile, pushed: PushedPolicy) -> str | None:
    database = open_database(settings.postgres, settings.state_dir, timeout=START_SECONDS, connections=1)
    try:
        reader = ReleaseReader(Rollout(database), file, keys_of(settings), pushed)
        async with asyncio.timeout(2 * START_SECONDS):
            await reader.read()
        return reader.problem
    finally:
        await database.close()


def open_follower(
    settings: Settings, database: Database, pushed: PushedPolicy, sink: EventSink, in_force: Callable[[], str]
) -> PolicyFollower:
    """Return what follows the roll-out in a process that serves."""
    file, store, keys = ReleaseFile(settings.state_dir), Rollout(database), keys_of(settings)
    bounds = Bounds(settings.canary_window, settings.canary_calls, settings.canary_denials, settings.canary_errors)
    reader = ReleaseReader(store, file, keys, pushed)
    return PolicyFollower(reader, store, file, bounds, sink, in_force, keys)
