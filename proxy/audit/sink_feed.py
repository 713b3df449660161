"""Feeds sinks from the local logs: each at its own pace, from its own position, in a thread beside the shipper's.

A sink never holds up a call, the store or another sink. A batch counts as taken once the sink says so, and its position
is written to the log then: after a crash in between the sink gets the batch again, and knows it by the events' ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import apsw
import structlog

from proxy.audit.ship_sources import others
from proxy.audit.sink_sources import SinkSource, forget_others, left_for_sink, own_source, register
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.errors import AuditUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from proxy.audit.local_log import LocalLog
    from proxy.core.event import LogEntry
    from proxy.sinks.role import Sink

log = structlog.get_logger("interlock.sinks")

IDLE_SECONDS = 1.0
LEFT_SECONDS = 10.0
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
WRITE_SECONDS = 60.0  # a sink that does not answer for so long has failed
LAST_SECONDS = 3.0
CLOSE_SECONDS = 1.0
MAX_ERROR = 500


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """One sink of the settings."""

    name: str
    keeps: int | None  # how many events the log keeps for it alone; None: all
    open: Callable[[], Sink]


@dataclass(frozen=True, slots=True)
class FeedRoute:
    """Which logs feed the sinks."""

    state_dir: Path
    spared: frozenset[Path] = frozenset()  # logs that are never taken as left behind


class SinkFeed:
    """Feeds one sink."""

    def __init__(self, plan: SinkPlan, route: FeedRoute, tell: Callable[[AuditEvent], None] | None) -> None:
        self.plan = plan
        self.own: SinkSource | None = None
        self._route = route
        self._tell = tell
        self._sink: Sink | None = None
        self._pause = FIRST_PAUSE
        self._problem: str | None = None
        self._looked = float("-inf")
        self._waits_since: float | None = None  # since when a batch that is not full waits for more

    async def run(self, stop: asyncio.Event) -> None:
        """Feed until `stop` is set. Never raises: what fails is noted and tried again, less and less often."""
        while not stop.is_set():
            try:
                pause = 0.0 if await self.round() else IDLE_SECONDS
            except Exception as error:  # noqa: BLE001  whatever it is, it is noted and tried again
                pause = self._failed(error)
            else:
                self._worked()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)

    async def round(self) -> bool:
        """Give the sink one batch of this process's log, and at times what others left; return whether more waits."""
        more = False
        if self.own is not None:
            more = await self._move(self.own)
            await asyncio.to_thread(self._tell_gaps, self.own)
        if time.monotonic() - self._looked >= LEFT_SECONDS:
            await self.move_left()
            self._looked = time.monotonic()
        return more

    async def move_left(self, only: Path | None = None) -> None:
        """Give the sink what is in the logs that nobody writes to, or in one of them."""
        for path in others(self._route.state_dir, self.own.path if self.own is not None else None):
            if path in self._route.spared or only not in (None, path):
                continue
            try:
                with left_for_sink(self.plan.name, path) as source:
                    while source is not None and await self._move(source, whole=True):
                        pass
            except (apsw.Error, OSError, AuditUnavailableError) as error:
                log.warning("a log that was left behind does not feed its sink", path=str(path), error=str(error))

    async def close(self) -> None:
        if self.own is not None:
            self.own.close()
            self.own = None
        if (sink := self._sink) is not None:
            self._sink = None
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await sink.close()

    async def _move(self, source: SinkSource, *, whole: bool = False) -> bool:
        """Give the sink the next batch of a log; return whether there may be more. With `whole`, none is waited for."""
        sink = self._sink = self._sink or self.plan.open()
        page = await asyncio.to_thread(source.read, sink.batch)
        if not page or (not whole and self._lingers(sink, page)):
            return False
        async with asyncio.timeout(WRITE_SECONDS):
            written = await sink.write(page)
        refused = {_seq(page[index]): (_event_id(page[index]), why) for index, why in written.poison.items()}
        for seq, (event_id, why) in refused.items():
            log.error("a sink does not take an event", sink=self.plan.name, seq=seq, event_id=event_id, reason=why)
        await asyncio.to_thread(source.taken, _seq(page[-1]), refused)
        self._waits_since = None
        return len(page) == sink.batch or whole

    def _lingers(self, sink: Sink, page: Sequence[LogEntry]) -> bool:
        if len(page) >= sink.batch or not sink.linger:
            return False
        now = time.monotonic()
        self._waits_since = self._waits_since or now
        return now - self._waits_since < sink.linger

    def _tell_gaps(self, source: SinkSource) -> None:
        """Record what the sink did not get: in the trail, so that the sink itself says what it misses."""
        gaps = source.untold()
        for _, gap in gaps:
            detail = {"sink": gap.sink, "count": gap.count, "first_id": gap.first_id, "last_id": gap.last_id}
            log.error("a sink has a gap; the store has these events", **detail, reason=gap.reason)
            if self._tell is not None:
                detail["why"] = gap.reason
                self._tell(AuditEvent(event_id=new_id(), kind="sink_gap", time=time.time(), detail=detail))
        if gaps:
            source.told([key for key, _ in gaps])

    def _failed(self, error: Exception) -> float:
        problem = f"{type(error).__name__}: {error}"[:MAX_ERROR]
        if problem != self._problem:
            self._problem = problem
            log.error("a sink does not take events; they wait in the local log", sink=self.plan.name, error=problem)
            self._note(problem)
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311  jitter, so that replicas do not come all at once
        self._pause = min(LONGEST_PAUSE, self._pause * 2)
        return pause

    def _worked(self) -> None:
        if self._problem is not None:
            log.warning("a sink takes events again", sink=self.plan.name)
            self._note(None)
        self._problem, self._pause = None, FIRST_PAUSE

    def _note(self, problem: str | None) -> None:
        if self.own is not None:
            with contextlib.suppress(apsw.Error, AuditUnavailableError):
                self.own.note(problem)


class SinkThread:
    """The sinks for as long as a process writes to its log: `stop` it, close the log, then let it `finish`."""

    def __init__(self, plans: Sequence[SinkPlan], route: FeedRoute, own: LocalLog) -> None:
        self._log = own
        self._route = route
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._finish = asyncio.Event()
        self._stopped = threading.Event()
        self._feeds = [SinkFeed(plan, route, own.record_later) for plan in plans]
        self._thread = threading.Thread(target=self._work, name="audit-sinks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End feeding, so that the log can be closed."""
        self._set(self._stop)
        self._stopped.wait(2 * LAST_SECONDS)

    def finish(self) -> None:
        """Give the sinks what is left, as far as LAST_SECONDS allow; the next start gives them the rest."""
        self._set(self._finish)
        self._thread.join(2 * LAST_SECONDS)

    def _set(self, event: asyncio.Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(event.set)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._feed())
        except Exception as error:
            log.exception("the sinks are fed no more; events stay in the local log", error=str(error))
        finally:
            self._stopped.set()
            self._loop.close()

    async def _feed(self) -> None:
        await asyncio.gather(*(self._feed_one(feed) for feed in self._feeds))
        self._stopped.set()
        await self._finish.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                # One after the other: each locks the log, and the lock of one keeps the others out.
                for feed in self._feeds:
                    with contextlib.suppress(Exception):  # the next start goes on from its position
                        await feed.move_left(self._log.path)
        for feed in self._feeds:
            await feed.close()

    async def _feed_one(self, feed: SinkFeed) -> None:
        while not self._stop.is_set() and feed.own is None:
            try:
                feed.own = own_source(feed.plan.name, self._log)
            except apsw.Error as error:
                log.warning("the local log cannot be opened for a sink; it is tried again", error=str(error))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), FIRST_PAUSE)
        work = asyncio.create_task(feed.run(self._stop))
        await self._stop.wait()
        await asyncio.wait({work}, timeout=LAST_SECONDS)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        if feed.own is not None:
            feed.own.close()
            feed.own = None


def open_feed(plans: Sequence[SinkPlan], route: FeedRoute, own: LocalLog, *, adopts_all: bool) -> SinkThread | None:
    """Note the sinks in the log, and start to feed them; None without any. Raises AuditUnavailableError.

    To be called before anything is shipped: what a sink has not taken must stay. Sinks that are in the settings no more
    are forgotten, and what was kept for them; with `adopts_all` in the logs that others left as well.
    """
    removed = set(register(own, {plan.name: plan.keeps for plan in plans}))
    for path in others(route.state_dir, own.path) if adopts_all else ():
        if path not in route.spared:
            with contextlib.suppress(apsw.Error, OSError):  # a log that cannot be read is told of by the shipper
                removed |= set(forget_others(path, [plan.name for plan in plans]))
    for name in sorted(removed):
        log.warning("a sink is no longer in the settings; nothing is kept for it any more", sink=name)
    return SinkThread(plans, route, own) if plans else None


def _seq(entry: LogEntry) -> int:
    assert entry.seq is not None
    return entry.seq


def _event_id(entry: LogEntry) -> str | None:
    from proxy.core.event_columns import PoisonError, columns  # noqa: PLC0415  rarely needed

    try:
        return str(columns(entry.body)[0])
    except PoisonError:
        return None
