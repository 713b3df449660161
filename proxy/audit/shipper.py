"""Moves events from the local logs to the store: in batches, once each, in their order.

An event leaves its log only after the store has committed it, and the store takes
one it has already as done, so that nothing is lost or doubled whatever breaks in
between. A shipper runs in a thread of its own with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw
import structlog

from proxy.audit.hash_chain import Head
from proxy.audit.retention import DAY, prune
from proxy.audit.ship_sources import OwnSource, left_behind, others
from proxy.errors import InterlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from proxy.audit.checkpoint_signer import CheckpointSigner
    from proxy.audit.event import Entry, Written
    from proxy.audit.local_log import LocalLog
    from proxy.audit.ship_sources import Source
    from proxy.store.event_store import Events

log = structlog.get_logger("interlock.shipper")

BATCH = 1000
MOST = 20_000
"""Events after which a look is taken at what else there is to do."""
IDLE_SECONDS = 0.5
LEFT_SECONDS = 10.0
UPKEEP_SECONDS = 3600.0
UPKEEP_AGAIN_SECONDS = 60.0
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
LAST_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Route:
    """Which logs go where."""

    state_dir: Path
    destination: str
    """Names the store, without secrets: logs that others left are moved only where they were meant to go."""
    adopts_all: bool = False
    """Whether logs that were meant for another store are moved as well."""
    spared: frozenset[Path] = frozenset()
    """Logs that are never taken for left: whoever comes to go on with one need not wait for it."""
    retention_days: float | None = None
    """How long the store keeps events; None: that is not for the shipper to see to."""


class Shipper:
    """Empties logs into a store."""

    def __init__(self, route: Route, store: Events, signer: CheckpointSigner, own: OwnSource | None) -> None:
        self.own = own
        self._route = route
        self._store = store
        self._signer = signer
        self._looked = self._upkeep_at = float("-inf")
        self._pause = FIRST_PAUSE
        self._problem: str | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Ship until told to stop. Never raises: what is wrong is noted and tried again, less and less often."""
        while not stop.is_set():
            try:
                moved = await self.round()
            except Exception as error:  # noqa: BLE001  whatever it is, it is noted and tried again
                pause = self._failed(error)
            else:
                self._worked()
                pause = 0.0 if moved >= BATCH else IDLE_SECONDS  # few are dearer to move than many
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)

    async def round(self) -> int:
        """Move a batch of this process's log, and now and then all that others left; return how many were moved."""
        moved = await self._move(self.own) if self.own is not None else 0
        if time.monotonic() - self._looked >= LEFT_SECONDS:
            moved += await self.move_left()
            self._looked = time.monotonic()
        await self._keep_up()
        return moved

    async def move_left(self) -> int:
        """Move all that nobody writes to any more."""
        moved, route = 0, self._route
        for path in others(route.state_dir, self.own.path if self.own is not None else None):
            if path in route.spared:
                continue
            try:
                with left_behind(path, route.destination, time.time(), any_destination=route.adopts_all) as source:
                    moved += await self._move_all(source) if source is not None else 0
            except (apsw.Error, OSError) as error:
                log.warning("a log that was left behind cannot be moved", path=str(path), error=str(error))
        return moved

    async def _move_all(self, source: Source) -> int:
        """Move what a process left, after signing where it had come to: it may not have done so itself."""
        self._signer.sign("head", [source.head()])
        moved = 0
        while batch := await self._move(source):
            moved += batch
        return moved

    async def _move(self, source: Source) -> int:
        """Move the oldest events of a log. While a full page is written, the next is read and the last let go of."""
        limit = BATCH * self._store.ways
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

    async def _write(self, source: Source, entries: Sequence[Entry]) -> dict[int, str]:
        """Put a page into the store; return the numbers of what it does not take, and why."""
        # If one of them fails, all are written again: what is there already is left as it is.
        parts = [entries[start : start + BATCH] for start in range(0, len(entries), BATCH)]
        written: list[Written] = await _all_done([self._store.write(part) for part in parts])
        rejected = {
            _seq(part[place]): why
            for part, done in zip(parts, written, strict=True)
            for place, why in done.poison.items()
        }
        if rejected:
            self._tell_rejected(source, entries, rejected)
        return rejected

    def _tell_rejected(self, source: Source, entries: Sequence[Entry], rejected: Mapping[int, str]) -> None:
        for seq, reason in rejected.items():
            log.error(
                "an event was set aside: the store does not take it", log=str(source.path), seq=seq, reason=reason
            )
        heads = [Head(entry.writer or "", _seq(entry), entry.chain or "") for entry in entries if entry.seq in rejected]
        self._signer.sign("rejected", heads)

    async def _keep_up(self) -> None:
        """Make room in the store, and let go of what is older than it has to keep. Shipping does not depend on it."""
        if time.monotonic() < self._upkeep_at:
            return
        try:
            await self._store.prepare(time.time())
            await self._let_go()
        except InterlockError as error:
            log.warning("the store cannot be kept up; that is tried again", error=str(error))
            self._upkeep_at = time.monotonic() + UPKEEP_AGAIN_SECONDS
        else:
            self._upkeep_at = time.monotonic() + UPKEEP_SECONDS

    async def _let_go(self) -> None:
        if self._route.retention_days is None:
            return
        before = time.time() - self._route.retention_days * DAY
        # An hour goes by between two times: what is old goes by and by, whatever the clock says.
        for problem in (await prune(self._store, before, self._signer, step=DAY)).problems:
            log.error(
                "old events are not what they were, and stay; look at `interlock audit verify`",
                writer=problem.writer,
                seq=problem.seq,
                problem=problem.what,
            )

    def _failed(self, error: Exception) -> float:
        problem = f"{type(error).__name__}: {error}"
        if problem != self._problem:
            self._problem = problem
            log.error("events cannot be moved to the store; they stay in the local log", error=problem)
            self._note(problem)
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311  jitter, so that replicas do not come all at once
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
        return pause

    def _worked(self) -> None:
        if self._problem is not None:
            log.warning("events are moved to the store again")
            self._note(None)
        self._problem, self._pause = None, FIRST_PAUSE

    def _note(self, problem: str | None) -> None:
        if self.own is not None:
            with contextlib.suppress(apsw.Error):
                self.own.note(problem)


async def _all_done(steps: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Return what came of every step, once none is under way any more. Raises the error of one that failed."""
    ended = await asyncio.gather(*steps, return_exceptions=True)
    if failed := [one for one in ended if isinstance(one, BaseException)]:
        raise failed[0]
    return ended


def _advance(source: Source, last: int, rejected: Mapping[int, str], after: int, limit: int) -> Sequence[Entry]:
    """Let go of what is in the store, which goes up to number `last`, and read what comes after another."""
    if last:
        source.discard(last, rejected)
    return source.read(limit, after)


def _seq(entry: Entry) -> int:
    assert entry.seq is not None
    return entry.seq


class ShippingThread:
    """A shipper for as long as a process writes to its log: `stop` it, close the log, then let it `finish`."""

    def __init__(self, route: Route, open_store: Callable[[], Events], signer: CheckpointSigner, own: LocalLog) -> None:
        self._route = route
        self._open_store = open_store
        self._signer = signer
        self._log = own
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._finish = asyncio.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="audit-shipper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let go of the log, so that it can be closed."""
        self._tell(self._stop)
        self._stopped.wait(2 * LAST_SECONDS)

    def finish(self) -> None:
        """Move what the log was left with, as far as a short time allows; the next start moves the rest."""
        self._tell(self._finish)
        self._thread.join(2 * LAST_SECONDS)

    def _tell(self, event: asyncio.Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: it ended by itself
            self._loop.call_soon_threadsafe(event.set)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._ship())
        except Exception as error:
            log.exception("the shipper ended; events stay in the local log", error=str(error))
        finally:
            self._stopped.set()
            self._loop.close()

    async def _ship(self) -> None:
        store, own = self._open_store(), await self._take_log()
        shipper = Shipper(self._route, store, self._signer, own)
        try:
            if own is not None:
                await _until(self._stop, shipper.run(self._stop))
                own.connection.close()
                shipper.own = None
            self._stopped.set()
            await self._finish.wait()
            async with asyncio.timeout(LAST_SECONDS):
                await shipper.move_left()
        except Exception as error:  # noqa: BLE001  whatever it is, another process moves them later
            log.warning("events stay in the local log until another start", error=str(error))
        finally:
            await store.close()

    async def _take_log(self) -> OwnSource | None:
        """Open the log of this process, again where it is kept busy or the disk is full; None where told to stop."""
        while not self._stop.is_set():
            try:
                return OwnSource(self._log, self._route.destination)
            except apsw.Error as error:
                log.warning("the local log cannot be opened to be moved; that is tried again", error=str(error))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), FIRST_PAUSE)
        return None


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do `work`, which ends by itself when told to stop; for so long and no longer."""
    working = asyncio.create_task(work)
    await stop.wait()
    await asyncio.wait({working}, timeout=LAST_SECONDS)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
