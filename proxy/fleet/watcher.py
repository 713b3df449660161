"""Keeps one process's state folder as the fleet says, and tells the fleet of this replica.

Every worker follows by itself, so that one which hangs holds up no other. The database tells of a change; in case it
does not, it is asked every second. While it is away, what was known last stays in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from typing import TYPE_CHECKING, Final

import structlog

from proxy.errors import ConfigError, StoreUnavailableError
from proxy.fleet.mirror import LIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.fleet.open_state import Fleet
    from proxy.store.fleet_store import FleetStore, Replica

log = structlog.get_logger("interlock.fleet")

ASK_SECONDS: Final = 1.0
BEAT_SECONDS: Final = 2.0
LIVE_SECONDS: Final = 15.0  # one that was silent for longer counts no more
# How long replicas may differ while a change reaches one after the other.
SETTLE_SECONDS: Final = 20.0

# How the version of a policy begins that `interlock policy push` brought.
PUSHED: Final = re.compile(r"v\d+-[0-9a-f]{64}")


class FleetWatcher:
    """Follows the fleet. `report` is what this replica says of itself; None: another process says it.

    `same_policy`: whether all replicas have to have the same one.
    """

    def __init__(
        self,
        fleet: Fleet,
        store: FleetStore,
        report: Callable[[], Replica | None] | None = None,
        *,
        same_policy: bool = True,
    ) -> None:
        self._fleet = fleet
        self._store = store
        self._report = report
        self._told = asyncio.Event()
        self._revision = 0
        self._asked = False
        self._away: str | None = None
        self._behind: tuple[str, ...] = ()
        self._agreement = Agreement(same_policy=same_policy)
        self.changed: Callable[[], None] = lambda: None  # called when something new may be in the folder
        # Up to which revision another process of this replica follows; None: this one has to ask by itself.
        self.followed: Callable[[], int | None] = lambda: None

    @property
    def revision(self) -> int:
        """What this process has of the fleet."""
        return self._revision

    @property
    def is_well(self) -> bool:
        """Whether the fleet's store was asked, and answered the last time."""
        return self._asked and self._away is None

    @property
    def problem(self) -> str | None:
        """Why this replica is not at one with its fleet, if so."""
        return "; ".join(self._behind) or self._agreement.problem

    def tell(self) -> None:
        """Ask at once: somebody said that something changed."""
        self._told.set()

    async def watch(self) -> None:
        """Follow and tell until cancelled."""
        await asyncio.gather(self._follow(), *([self._beat(self._report)] if self._report else []))

    async def _follow(self) -> None:
        while True:
            try:
                if self._has_to_ask():
                    self._told.clear()
                    await self._catch_up()
                    self._asked = True
                self._say_away(None)
            except (StoreUnavailableError, ConfigError, OSError) as error:
                self._say_away(str(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), ASK_SECONDS)

    def _has_to_ask(self) -> bool:
        followed = self.followed()
        if followed is None or followed != self._revision:
            return True
        return self._told.is_set() or bool(self._behind) or not self._asked

    async def _catch_up(self) -> None:
        fleet = await self._store.fleet()
        revision = fleet.revision if fleet is not None else -1
        if revision == self._revision and not self._behind:
            return
        problems = await self._fleet.state.catch_up(self._store)
        behind = (*problems, *self._replaced())
        if behind != self._behind and behind:
            log.error("this replica does not agree with its fleet", problems=behind)
        self._behind = behind
        self._revision = revision
        self.changed()

    def _replaced(self) -> Sequence[str]:
        """Name the keys that were replaced and that a proxy reads at its start alone."""
        now = self._fleet.state.mirror.key_ids()
        changed = [name for name in now if name not in LIVE and now[name] != self._fleet.keys_at_start.get(name)]
        return [f"the fleet has new keys ({', '.join(changed)}); start this replica again"] if changed else []

    def _say_away(self, why: str | None) -> None:
        if (why is None) != (self._away is None):
            if why is not None:
                log.warning("the fleet's store is away; what was known last stays in force", error=why)
            else:
                log.info("the fleet's store is back")
        self._away = why

    async def _beat(self, report: Callable[[], Replica | None]) -> None:
        while True:
            try:
                if (own := report()) is not None:
                    self._agreement.look(own, await self._store.beat(own), time.monotonic())
            except (StoreUnavailableError, ConfigError, OSError) as error:
                log.debug("the fleet was not told of this replica", error=str(error))
            await asyncio.sleep(BEAT_SECONDS)


class Agreement:
    """Whether a replica has the keys and the policy of those that were there before it."""

    def __init__(self, settle: float = SETTLE_SECONDS, *, same_policy: bool = True) -> None:
        self._settle = settle
        self._same_policy = same_policy
        self._since: float | None = None
        self._looked = False
        self.problem: str | None = None

    def look(self, own: Replica, others: Sequence[Replica], now: float) -> None:
        """Compare. At the start a difference counts at once; later, once it has lasted."""
        found = disagreement(own, others, same_policy=self._same_policy)
        if found is None:
            self._since = self.problem = None
        else:
            self._since = now if self._since is None else self._since
            if not self._looked or self.problem or now - self._since >= self._settle:
                self.problem = found
        self._looked = True


def disagreement(own: Replica, replicas: Sequence[Replica], *, same_policy: bool = True) -> str | None:
    """Say in what a replica differs from the live ones that started before it."""
    order = (own.started_at, own.replica_id)
    live = [one for one in replicas if one.silent < LIVE_SECONDS and one.replica_id != own.replica_id]
    older = [one for one in live if (one.started_at, one.replica_id) < order]
    pushed = next((one for one in live if PUSHED.match(one.policy)), None)
    if same_policy and pushed is not None:
        # Whichever started first: what was pushed holds for all.
        told = f"this replica has the policy of its files, and {pushed.host} ({pushed.replica_id}) one that was pushed"
        return f"{told}; set policy_source: pushed"
    for what, mine, theirs in (
        ("keys", own.keys, [(one, one.keys) for one in older]),
        ("policy", own.policy, [(one, one.policy) for one in older]),
    ):
        if what == "policy" and not same_policy:
            continue
        if theirs and all(value != mine for _, value in theirs):
            other, value = theirs[0]
            return f"this replica has another {what} ({mine}) than {other.host} ({other.replica_id}: {value})"
    return None


def keys_digest(key_ids: dict[str, str]) -> str:
    """Name a set of keys: replicas that can read each other's tokens, masks and seals have the same."""
    text = "\n".join(f"{name}:{key_id}" for name, key_id in sorted(key_ids.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
