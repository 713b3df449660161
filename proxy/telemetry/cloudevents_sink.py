"""A sink that posts CloudEvents: many in a request, or one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.telemetry.cloudevents import BATCH_CONTENT_TYPE, CONTENT_TYPE, cloud_event_line
from proxy.telemetry.http_sink import HttpSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.sinks.telemetry_settings import CloudEventsSettings
    from proxy.telemetry.exported_event import ExportedEvent


def open_sink(settings: CloudEventsSettings) -> HttpSink:
    if settings.mode == "structured":
        return HttpSink(settings, lambda events: cloud_event_line(events[0]), CONTENT_TYPE, single=True)
    return HttpSink(settings, _array, BATCH_CONTENT_TYPE)


def _array(events: Sequence[ExportedEvent]) -> str:
    return f"[{','.join(map(cloud_event_line, events))}]"
