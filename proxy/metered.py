"""The sink that counts: every event on its way to the audit log is taken into the worker's meters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from proxy.meters import AUDIT_WRITE

if TYPE_CHECKING:
    from proxy.meters import Row
    from proxy.model import AuditEvent
    from proxy.roles import EventSink


class MeteredSink:
    """An EventSink before another. What could not be recorded is counted too: it happened."""

    def __init__(self, sink: EventSink, meters: Row) -> None:
        self._sink = sink
        self._meters = meters

    async def record(self, event: AuditEvent) -> None:
        """Return once `event` is durable, as the sink behind it says."""
        self._meters.count(event)
        begun = time.perf_counter()
        await self._sink.record(event)
        self._meters.time(AUDIT_WRITE, time.perf_counter() - begun)

    def record_later(self, event: AuditEvent) -> None:
        """Take `event` without making anybody wait for it."""
        self._meters.count(event)
        self._sink.record_later(event)
