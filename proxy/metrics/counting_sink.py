"""The sink that counts: every event on its way to the audit log is taken into the worker's meters.

Counting is put off to the end of the event loop's turn and then done for all events of it at once: by itself each would
find nothing of what counting needs in the processor's caches, which takes ten times as long as the counting.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

from proxy.metrics.counters import AUDIT_WRITE

if TYPE_CHECKING:
    from proxy.core.interfaces import EventSink
    from proxy.core.model import AuditEvent
    from proxy.metrics.counters import WorkerCounters

AT_ONCE = 256


class CountingSink:
    """An EventSink before another. What could not be recorded is counted too: it happened."""

    def __init__(self, sink: EventSink, counters: WorkerCounters) -> None:
        self._sink = sink
        self._counters = counters
        self._uncounted: deque[AuditEvent | float] = deque()
        """Events, and how many seconds each of them took to be durable."""

    async def record(self, event: AuditEvent) -> None:
        """Return once `event` is durable, as the sink behind it says."""
        self._count(event)
        begun = time.perf_counter()
        await self._sink.record(event)
        self._count(time.perf_counter() - begun)

    def record_later(self, event: AuditEvent) -> None:
        """Take `event` without making anybody wait for it."""
        self._count(event)
        self._sink.record_later(event)

    def _count(self, what: AuditEvent | float) -> None:
        self._uncounted.append(what)
        loop = asyncio._get_running_loop()  # noqa: SLF001  the other way to ask raises where there is none
        if loop is None:
            self._count_all()
        elif len(self._uncounted) % AT_ONCE == 1:  # the first; and again, should a loop have ended before it counted
            loop.call_soon(self._count_all)

    def _count_all(self) -> None:
        """Count what waits for it. Large answers are read in other threads, so another one may count the last of it."""
        uncounted, counters = self._uncounted, self._counters
        while True:
            try:
                what = uncounted.popleft()
            except IndexError:
                return
            if isinstance(what, float):
                counters.time(AUDIT_WRITE, what)
            else:
                counters.count(what)
