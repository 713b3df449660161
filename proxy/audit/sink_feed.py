"""Feeds sinks from the local logs: each at its own pace, from its own position, in a thread beside the shipper's.

A sink never holds up a call, the store or another sink. A batch counts as taken once the sink says so, and its position
is written to the log then: after a crash in between the sink gets the batch again, and knows it by the events' ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import apsw
import structlog

from proxy.audit import log_thread
from proxy.audit.log_thread import LogThread, Retries, rest, work_until
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
WRITE_SECONDS = 60.0  # a sink that does not answer for so long has failed
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
        self._retries = Retries()
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
            await rest(stop, pause)

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
        if self._retries.failed(problem):
            log.error("a sink does not take events; they wait in the local log", sink=self.plan.name, error=problem)
            self._note(problem)
        return self._retries.pause()

    def _worked(self) -> None:
        if self._retries.worked():
            log.warning("a sink takes events again", sink=self.plan.name)
            self._note(None)

    def _note(self, problem: str | None) -> None:
        if self.own is not None:
            with contextlib.suppress(apsw.Error, AuditUnavailableError):
                self.own.note(problem)


class SinkThread(LogThread):
    """The sinks for as long as a process writes to its log."""

    def __init__(self, plans: Sequence[SinkPlan], route: FeedRoute, own: LocalLog) -> None:
        self._log = own
        self._feeds = [SinkFeed(plan, route, own.record_later) for plan in plans]
        super().__init__("audit-sinks")

    async def run(self) -> None:
        """Feed the sinks, and once the log is closed give them what is left, as far as LAST_SECONDS allow."""
        await asyncio.gather(*(self._feed_one(feed) for feed in self._feeds))
        self._stopped.set()
        await self._finish.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(log_thread.LAST_SECONDS):
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
                await rest(self._stop, log_thread.FIRST_PAUSE)
        await work_until(self._stop, feed.run(self._stop))
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
