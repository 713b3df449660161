"""An audit sink that counts every event before it passes it on.

Counting waits until the end of the event loop's iteration and then handles all events at once: counted one by one, each
event would find the counters' code and data evicted from the CPU caches, which costs ten times the counting itself.
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
    """An EventSink in front of another. Events that could not be recorded are counted too: they happened."""

    def __init__(self, sink: EventSink, counters: WorkerCounters) -> None:
        self._sink = sink
        self._counters = counters
        # Events, and the seconds that each of them took to become durable.
        self._uncounted: deque[AuditEvent | float] = deque()

    async def record(self, event: AuditEvent) -> None:
        """Return once the wrapped sink has made `event` durable."""
        begun = time.perf_counter()
        try:
            await self._sink.record(event)
        finally:
            self._count(event)  # also where that failed: it happened
        self._count(time.perf_counter() - begun)

    def record_later(self, event: AuditEvent) -> None:
        self._count(event)
        self._sink.record_later(event)

    def _count(self, what: AuditEvent | float) -> None:
        self._uncounted.append(what)
        loop = asyncio._get_running_loop()  # noqa: SLF001  the public function raises if there is none
        if loop is None:
            self._count_all()
        # Once for the first event; and again every 256, in case a loop ended before its callback ran.
        elif len(self._uncounted) % AT_ONCE == 1:
            loop.call_soon(self._count_all)

    def _count_all(self) -> None:
        # Threads that scan large bodies may empty the deque meanwhile, so emptiness is found by popping, not by asking.
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
