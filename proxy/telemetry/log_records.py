"""Log records of OpenTelemetry: one for each audit event. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber

from proxy.telemetry import attributes as names
from proxy.telemetry.otlp_values import any_value, attributes, nanoseconds
from proxy.telemetry.trace_context import span_id, trace_of

if TYPE_CHECKING:
    from proxy.core.model import JsonObject
    from proxy.telemetry.exported_event import ExportedEvent

_SEVERITIES = {
    "info": (SeverityNumber.SEVERITY_NUMBER_INFO, "INFO"),
    "low": (SeverityNumber.SEVERITY_NUMBER_INFO2, "INFO2"),
    "medium": (SeverityNumber.SEVERITY_NUMBER_WARN, "WARN"),
    "high": (SeverityNumber.SEVERITY_NUMBER_ERROR, "ERROR"),
}


def log_record(event: ExportedEvent, traceparent: object, more: JsonObject, *, joined: bool = True) -> LogRecord:
    """Return the record of an event; where it is `joined`, in the span of its call, whose `traceparent` is given."""
    number, word = _SEVERITIES[event.severity]
    said = names.operation(event) | names.request(event) | names.server(event) | more | names.verdict(event)
    said |= {
        "log.record.uid": event.event_id,
        "interlock.kind": event.kind,
        "interlock.writer": event.writer,
        "interlock.seq": event.seq,
        "interlock.chain": event.chain,
    }
    record = LogRecord(
        time_unix_nano=nanoseconds(event.time),
        observed_time_unix_nano=nanoseconds(event.time),
        severity_number=number,
        severity_text=word,
        body=any_value(event.summary),
        event_name=f"interlock.{event.kind}",
        attributes=attributes(said),
    )
    if joined and event.call_id is not None:
        trace = trace_of(event.call_id, traceparent)
        record.trace_id, record.span_id = trace.trace_id, span_id(event.call_id, "server")
        record.flags = trace.flags
    return record
