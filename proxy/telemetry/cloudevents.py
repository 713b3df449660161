"""Audit events as CloudEvents 1.0, in the JSON format. Pure.

`source` and `id` together name an event: a consumer that sees a pair twice has seen a repetition.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from proxy.core.model import SCHEMA_VERSION
from proxy.telemetry.exported_event import json_line
from proxy.telemetry.trace_context import read_traceparent

if TYPE_CHECKING:
    from proxy.core.model import JsonObject
    from proxy.telemetry.exported_event import ExportedEvent

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
BATCH_CONTENT_TYPE: Final = "application/cloudevents-batch+json; charset=utf-8"
PREFIX: Final = "io.mcp-interlock.audit."


def cloud_event(event: ExportedEvent) -> JsonObject:
    """Return an event as a CloudEvent; `data` is the audit event."""
    made: JsonObject = {
        "specversion": "1.0",
        "id": event.event_id,
        "source": f"/interlock/{quote(event.writer or 'unknown', safe='')}",
        "type": f"{PREFIX}{quote(event.kind, safe='')}",
        "time": dt.datetime.fromtimestamp(event.time, dt.UTC).isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "dataschema": f"urn:interlock:audit-event:{SCHEMA_VERSION}",
    }
    if subject := event.call_id:
        made["subject"] = subject
    # Extensions: names are lower case letters and digits. `traceparent` is CloudEvents' own.
    if read_traceparent(event.detail.get("traceparent")) is not None:
        made["traceparent"] = event.detail["traceparent"]
    if event.seq is not None:
        made["sequence"] = str(event.seq)
    made["severity"] = event.severity
    return made | {"data": dict(event.fields)}


def cloud_event_line(event: ExportedEvent) -> str:
    return json_line(cloud_event(event))
