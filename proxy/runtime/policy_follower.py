"""Follows the policy roll-out: reads new steps, keeps those that can be used, counts for canaries and ends bad ones.

One process of a replica reads the store and writes the replica's file; the others, and the supervisor, see the file
within a tenth of a second. So a replica needs one connection that listens, and starts without the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

import structlog

from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.core.rollout import ReplicaState
from proxy.errors import ConfigError, PolicyError, StoreUnavailableError
from proxy.rollout.canary import Bounds, Tally, jump
from proxy.rollout.release_file import Release
from proxy.rollout.step import verify

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from proxy.audit.signing_keys import PublicKey
    from proxy.core.interfaces import EventSink
    from proxy.core.rollout import RolloutStore, SignedStep
    from proxy.rollout.pushed_policy import PushedPolicy
    from proxy.rollout.release_file import ReleaseFile, VerifiedRelease
    from proxy.store.postgres_listen import PostgresListener

log = structlog.get_logger("interlock.policy")

ASK_SECONDS: Final = 0.5  # between two looks at a file of this machine
TICK_SECONDS: Final = 1.0
REPORT_SECONDS: Final = 10.0
LOOKED_AT: Final = 20  # of the newest steps: one that cannot be used hides none below it


class ReleaseReader:
    """Takes what the store has into the replica's file, where it can be verified and used here."""

    def __init__(
        self,
        store: RolloutStore,
        file: ReleaseFile,
        keys: Callable[[], Mapping[str, PublicKey]],
        policy: PushedPolicy,
    ) -> None:
        self._store = store
        self._file = file
        self._keys = keys
        self._policy = policy
        self._unusable: dict[SignedStep, str] = {}  # what was signed and cannot be compiled here, and why
        self.problem: str | None = None

    async def read(self) -> VerifiedRelease | None:
        """Bring the file up to date; return what was new; set `problem`. Raises StoreUnavailableError."""
        known = self._known()
        number = known.signed.number if known is not None else 0
        steps = await self._store.newest(0, LOOKED_AT)
        self.problem, taken = None, None
        for signed in steps:
            if signed.number <= number:
                break
            taken = await self._take(signed)
            if taken is not None:
                break
        if taken is None:
            self.problem = self.problem or _lost(steps, known)
        known = self._known()
        if known is not None and known.returned is None:
            await self._look_for_return(known)
        return taken

    def _known(self) -> Release | None:
        try:
            return self._file.read()
        except PolicyError:
            return None

    async def _take(self, signed: SignedStep) -> VerifiedRelease | None:
        """Put a step into the file; None where it cannot be used, or another process was first."""
        if signed in self._unusable:
            self._refuse(self._unusable[signed])
            return None
        try:
            # Before anything is fetched for it: who can write to the store must not make replicas read at will.
            step = verify(signed, self._keys())
            bundles = {version.digest: await self._store.bundle(version.digest) or "" for version in step.versions}
            release = Release(signed, bundles, await self._store.returned(signed.number))
            verified = release.verified(self._keys())
        except (PolicyError, ConfigError) as error:
            self._refuse(str(error))
            return None
        try:
            await asyncio.to_thread(self._policy.compile, verified)
        except Exception as error:  # noqa: BLE001  whatever is wrong with it, the old one stays in force
            why = f"version {max(step.versions, key=lambda v: v.number).number} cannot be used here: {error}"
            self._unusable = {**dict(list(self._unusable.items())[-LOOKED_AT:]), signed: why}
            self._refuse(why)
            return None
        return verified if self._file.learn(release) else None

    def _refuse(self, why: str) -> None:
        self.problem = self.problem or why

    async def _look_for_return(self, known: Release) -> None:
        reason = await self._store.returned(known.signed.number)
        if reason is not None and self._file.end_canary(known.signed.number, reason):
            log.warning("the canary has ended; the stable version is in force", step=known.signed.number, reason=reason)


def _lost(steps: Sequence[SignedStep], known: Release | None) -> str | None:
    """Return what is wrong where the store has less than this replica follows, or something else."""
    found = {step.number: step for step in steps}
    if known is None:
        return None
    number = known.signed.number
    if number not in found and (not found or max(found) < number):
        return (
            f"the store's newest policy step is {max(found, default=0)}, and step {number} is in force here: "
            "steps were deleted, or a backup was restored; push again"
        )
    if number in found and found[number] != known.signed:
        return f"the store has another policy step {number} than the one in force here; find out who stored it"
    return None


class PolicyFollower:
    """Keeps one process's part of the roll-out. `leads` says whether this process reads the store just now."""

    def __init__(
        self,
        reader: ReleaseReader,
        store: RolloutStore,
        file: ReleaseFile,
        bounds: Bounds,
        sink: EventSink,
        in_force: Callable[[], str],
        keys: Callable[[], Mapping[str, PublicKey]],
    ) -> None:
        self._reader = reader
        self._store = store
        self._file = file
        self._bounds = bounds
        self._sink = sink
        self._in_force = in_force
        self._keys = keys
        self._told = asyncio.Event()
        self._away = False
        self._reported: tuple[ReplicaState | None, float] = (None, 0.0)
        self._seen: object = ()
        self._release: VerifiedRelease | None = None
        self._canary: VerifiedRelease | None = None
        self._number = 0  # of the step that is in force in this process
        self.tally = Tally()
        self.leads: Callable[[], bool] = lambda: True

    @property
    def problem(self) -> str | None:
        """Why a newer step is not in force here; the process that reads the store for all says so."""
        return self._reader.problem if self.leads() else None

    def tell(self, _payload: str = "") -> None:
        """Read the store at once: somebody said that there is something new."""
        self._told.set()

    async def run(self, listener: PostgresListener | None, *, lead: bool) -> None:
        """Follow the roll-out until cancelled: told by Postgres, or by looking at the file of this machine's store."""
        self.leads = (lambda: lead) if listener is None else (lambda: listener.ours)
        await asyncio.gather(self.follow(ASK_SECONDS if listener is None and lead else None), self.tend())

    async def follow(self, ask_seconds: float | None = None) -> None:
        """Follow the store whenever told, and every `ask_seconds`. Runs until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), ask_seconds)
            self._told.clear()
            await self._guarded(self._read())

    async def tend(self) -> None:
        """Count, judge canaries and report, every second. Runs until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await self._guarded(self._tend())

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except (StoreUnavailableError, TimeoutError) as error:
            if not self._away:
                log.warning("the store of policies does not answer; the policy in force stays", error=str(error))
            self._away = True
        except Exception as error:  # the boundary: a roll-out that fails must not end a worker
            log.exception("the roll-out failed", error=str(error))
        else:
            self._away = False

    async def _read(self) -> None:
        taken = await self._reader.read()
        if taken is not None:
            self._record("policy_step", taken)

    async def _tend(self) -> None:
        self._notice()
        await self._flush()
        if not self.leads():
            return
        if self._canary is not None:
            await self._judge(self._canary)
        await self._report()

    def _notice(self) -> None:
        """Look which canary is to be counted for."""
        if (stamp := self._file.stamp()) == self._seen:
            return
        self._seen = stamp
        release = self._file.read()
        verified = release.verified(self._keys()) if release is not None else None
        self._release = verified
        self._canary = verified if verified is not None and verified.has_canary else None
        canary = self._canary.step.canary if self._canary is not None else None
        self.tally.follow((str(self._canary.step.stable), str(canary.version)) if self._canary and canary else None)

    async def _flush(self) -> None:
        counted = self.tally.take()
        if self._canary is None or not counted:
            return
        try:
            await self._store.count(self._canary.step.number, self._file.replica(), counted)
        except StoreUnavailableError:
            self.tally.put_back(counted)
            raise

    async def _judge(self, release: VerifiedRelease) -> None:
        number = release.step.number
        why = jump(await self._store.counts(number, self._bounds.seconds), self._bounds)
        if why is None:
            return
        if await self._store.give_up(number, self._file.replica(), why):
            self._record("policy_returned", release, why)
        self.tell()

    async def _report(self) -> None:
        now, version = time.monotonic(), self._in_force()
        # Only what decides calls already is said to be in force: loading it takes a moment.
        if self._release is not None and _is_of(self._release, version):
            self._number = self._release.step.number
        state = ReplicaState(self._file.replica(), self._number, version, self.problem)
        said, at = self._reported
        if state != said or now >= at + REPORT_SECONDS:
            await self._store.report(state)
            self._reported = (state, now)

    def _record(self, kind: str, release: VerifiedRelease, why: str | None = None) -> None:
        step = release.step
        detail = {"step": step.number, "action": step.action, "operator": step.operator, "stable": str(step.stable)}
        if step.canary is not None:
            detail["canary"] = str(step.canary.version)
        if why is not None:
            detail["why"] = why
        self._sink.record_later(AuditEvent(event_id=new_id(), kind=kind, time=time.time(), detail=detail))


def _is_of(release: VerifiedRelease, version: str) -> bool:
    """Return whether a policy in force is one that a step brings; by agent, it names both versions."""
    return set(version.split("+")) <= {str(one) for one in release.step.versions}


class TallySink:
    """An EventSink in front of another that counts its events for a canary."""

    def __init__(self, sink: EventSink, tally: Tally) -> None:
        self._sink = sink
        self._tally = tally

    async def record(self, event: AuditEvent) -> None:
        """Return once the wrapped sink has made `event` durable."""
        self._tally.count(event)
        await self._sink.record(event)

    def record_later(self, event: AuditEvent) -> None:
        self._tally.count(event)
        self._sink.record_later(event)
