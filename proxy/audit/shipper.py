"""Ships events from the local logs to the store: in batches, once each, in their order.

An event is deleted from its log only after the store has committed it, and the store ignores an event that it has
already, so that nothing is lost or doubled whatever breaks in between. A shipper runs in a thread of its own with an
event loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw
import structlog

from proxy.audit import log_thread
from proxy.audit.log_thread import LogThread, Retries, rest, work_until
from proxy.audit.retention import DAY, prune
from proxy.audit.ship_sources import LogSource, OwnSource, left_behind, others
from proxy.audit.writers import Registrar, RestoredError
from proxy.core.event import Head, LogEntry, Written
from proxy.errors import InterlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from proxy.audit.checkpoint_signer import CheckpointSigner
    from proxy.audit.event_store import Events
    from proxy.audit.local_log import LocalLog
    from proxy.store.database import Database

log = structlog.get_logger("interlock.shipper")

BATCH = 1000
MOST = 20_000  # events after which a round ends, so that upkeep and other logs get their turn under constant load
IDLE_SECONDS = 1.0
LEFT_SECONDS = 10.0
UPKEEP_SECONDS = 3600.0
UPKEEP_AGAIN_SECONDS = 60.0
SUM_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Route:
    """Which logs go where."""

    state_dir: Path
    destination: str  # names the store, without secrets: a log that was left behind goes only where it was meant to
    adopts_all: bool = False  # whether logs that were meant for another store are shipped as well
    # Logs that are never taken as left behind: the worker that will continue one need not wait for its lock.
    spared: frozenset[Path] = frozenset()
    # The database that is asked for the registry's end, where the store's own connection shall rest.
    registry: Database | None = None
    witnesses: bool = True  # whether this process looks after the registry; one of a proxy is enough
    retention_days: float | None = None  # how long the store keeps events; None: the shipper deletes none


class Shipper:
    def __init__(self, route: Route, store: Events, signer: CheckpointSigner, own: OwnSource | None) -> None:
        self.own = own
        self._route = route
        self._store = store
        self._signer = signer
        self._registrar = Registrar(store, signer, route.registry)
        self._looked = self._upkeep_at = float("-inf")
        self._sum_at = time.monotonic() + SUM_SECONDS
        self._retries = Retries()

    async def run(self, stop: asyncio.Event) -> None:
        """Ship until `stop` is set. Never raises: what fails is noted and tried again, less and less often."""
        while not stop.is_set():
            try:
                moved = await self.round()
            except Exception as error:  # noqa: BLE001  whatever it is, it is noted and tried again
                pause = self._failed(error)
            else:
                self._worked()
                # A commit costs the same for few events as for many, so wait for more. A round ends where the log was
                # empty, or at MOST events: only then there are more already.
                pause = 0.0 if moved >= MOST else IDLE_SECONDS
            await rest(stop, pause)

    async def round(self) -> int:
        """Ship what this process's log has, and every LEFT_SECONDS what others left; return how many events."""
        moved = await self._move(self.own) if self.own is not None else 0
        await self._registrar.deliver()
        if time.monotonic() - self._looked >= LEFT_SECONDS:
            moved += await self.move_left()
            if self._route.witnesses:
                await self._registrar.witness()
            self._looked = time.monotonic()
        await self._keep_up()
        if moved and time.monotonic() >= self._sum_at:
            await self._sum_up()
        return moved

    async def _sum_up(self) -> None:
        self._sum_at = time.monotonic() + SUM_SECONDS
        try:
            await self._store.sum_up_lately(time.time())
        except InterlockError as error:
            log.warning("what reports read is not summed up; it is tried again", error=str(error))

    async def move_left(self) -> int:
        """Ship the logs that no process writes to any more; return how many events."""
        moved, route = 0, self._route
        for path in others(route.state_dir, self.own.path if self.own is not None else None):
            if path in route.spared:
                continue
            try:
                with left_behind(path, route.destination, time.time(), any_destination=route.adopts_all) as source:
                    if source is not None:
                        await self._registrar.ensure(source)  # before it is signed: a log that was put back is not
                        # A process that was killed signed nothing: else its last events could be cut off unseen.
                        self._signer.sign("head", [source.head()])
                        while batch := await self._move(source):
                            moved += batch
            except (apsw.Error, OSError, RestoredError) as error:
                log.warning("a log that was left behind cannot be shipped", path=str(path), error=str(error))
        await self._registrar.deliver()
        return moved

    async def _move(self, source: LogSource) -> int:
        """Ship the oldest events of a log. While a full page is written, the next is read and the last deleted."""
        await self._registrar.ensure(source)
        limit = BATCH * self._store.parallel_batches
        moved, last, rejected = 0, 0, dict[int, str]()
        page = source.read(limit)
        while page:
            steps: list[Coroutine[Any, Any, Any]] = [self._write(source, page)]
            if len(page) == limit and moved < MOST:
                steps.append(asyncio.to_thread(_advance, source, last, rejected, _seq(page[-1]), limit))
            refused, *ahead = await _all_done(steps)
            moved, last = moved + len(page), _seq(page[-1])
            rejected, page = (refused, ahead[0]) if ahead else (rejected | refused, ())
        if moved:
            source.discard(last, rejected)
        return moved

    async def _write(self, source: LogSource, entries: Sequence[LogEntry]) -> dict[int, str]:
        """Write a page to the store; return the numbers of the events that it does not take, and why."""
        # At once, each on its own connection. If one fails, all are written again: the store ignores what it has.
        parts = [entries[start : start + BATCH] for start in range(0, len(entries), BATCH)]
        written: list[Written] = await _all_done([self._store.write(part) for part in parts])
        rejected = {
            _seq(part[index]): why
            for part, done in zip(parts, written, strict=True)
            for index, why in done.poison.items()
        }
        for seq, reason in rejected.items():
            log.error("the store does not take an event; it is set aside", log=str(source.path), seq=seq, reason=reason)
        if rejected:
            # Signed, because a chain with a hole verifies only where the hole is vouched for.
            bad = [entry for entry in entries if entry.seq in rejected]
            self._signer.sign("rejected", [Head(one.writer or "", _seq(one), one.chain or "") for one in bad])
        return rejected

    async def _keep_up(self) -> None:
        """Make partitions, and delete what is older than retention_days. Shipping does not depend on it."""
        if time.monotonic() < self._upkeep_at:
            return
        try:
            await self._store.prepare(time.time())
            if self._route.retention_days is not None:
                await self._prune(time.time() - self._route.retention_days * DAY)
        except InterlockError as error:
            log.warning("upkeep of the store failed; it is tried again", error=str(error))
            self._upkeep_at = time.monotonic() + UPKEEP_AGAIN_SECONDS
        else:
            self._upkeep_at = time.monotonic() + UPKEEP_SECONDS

    async def _prune(self, before: float) -> None:
        # A day's worth at most, once an hour: a clock that jumps ahead does not empty the store before it is noticed.
        for problem in (await prune(self._store, before, self._signer, step=DAY)).problems:
            what = {"writer": problem.writer, "seq": problem.seq, "problem": problem.what}
            log.error("old events do not verify and are not deleted; run `interlock audit verify`", **what)

    def _failed(self, error: Exception) -> float:
        problem = f"{type(error).__name__}: {error}"
        if self._retries.failed(problem):
            log.error("events cannot be shipped to the store; they stay in the local log", error=problem)
            self._note(problem)
        return self._retries.pause()

    def _worked(self) -> None:
        if self._retries.worked():
            log.warning("events are shipped to the store again")
            self._note(None)

    def _note(self, problem: str | None) -> None:
        if self.own is not None:
            with contextlib.suppress(apsw.Error):
                self.own.note(problem)


async def _all_done(steps: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Return the results once every step has ended; raise the first error, but not before: none may run on unseen."""
    ended = await asyncio.gather(*steps, return_exceptions=True)
    if failed := [one for one in ended if isinstance(one, BaseException)]:
        raise failed[0]
    return ended


def _advance(source: LogSource, last: int, rejected: Mapping[int, str], after: int, limit: int) -> Sequence[LogEntry]:
    """Delete up to number `last`, which is in the store, and read what comes after number `after`."""
    if last:
        source.discard(last, rejected)
    return source.read(limit, after)


def _seq(entry: LogEntry) -> int:
    assert entry.seq is not None
    return entry.seq


class ShippingThread(LogThread):
    """A shipper for as long as a process writes to its log."""

    def __init__(self, route: Route, open_store: Callable[[], Events], signer: CheckpointSigner, own: LocalLog) -> None:
        self._route = route
        self._open_store = open_store
        self._signer = signer
        self._log = own
        super().__init__("audit-shipper")

    async def run(self) -> None:
        """Ship the log, and once it is closed what is left, as far as LAST_SECONDS allow."""
        store, own = self._open_store(), await self._take_log()
        shipper = Shipper(self._route, store, self._signer, own)
        try:
            if own is not None:
                await work_until(self._stop, shipper.run(self._stop))
                own.connection.close()
                shipper.own = None
            self._stopped.set()
            await self._finish.wait()
            async with asyncio.timeout(log_thread.LAST_SECONDS):
                await shipper.move_left()
        except Exception as error:  # noqa: BLE001  whatever it is, another process moves them later
            log.warning("events stay in the local log until another start", error=str(error))
        finally:
            await store.close()

    async def _take_log(self) -> OwnSource | None:
        """Open the log of this process, again and again while it is busy or the disk is full; None once stopped."""
        while not self._stop.is_set():
            try:
                return OwnSource(self._log, self._route.destination)
            except apsw.Error as error:
                log.warning("the local log cannot be opened for shipping; it is tried again", error=str(error))
                await rest(self._stop, log_thread.FIRST_PAUSE)
        return None
