"""A sink for OCSF events, one a line: in a file, or in posts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.telemetry.file_sink import FileSink
from proxy.telemetry.http_sink import HttpSink
from proxy.telemetry.ocsf import ocsf_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.sinks.telemetry_settings import OcsfSettings
    from proxy.telemetry.exported_event import ExportedEvent

NDJSON: Final = "application/x-ndjson; charset=utf-8"


def open_sink(settings: OcsfSettings) -> FileSink | HttpSink:
    if settings.path is not None:
        return FileSink(settings.path, ocsf_line, with_arguments=settings.arguments)
    return HttpSink(settings, _lines, NDJSON)


def _lines(events: Sequence[ExportedEvent]) -> str:
    return "".join(f"{ocsf_line(event)}\n" for event in events)
