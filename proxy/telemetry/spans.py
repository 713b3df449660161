"""Spans of calls: one for what the client asked of the proxy, one for what the proxy asked of the server. Pure.

A call that was forwarded has its spans once it is `completed`; one that the proxy answered itself, once it is
`decided`. Each event has all that its spans need, so that an export that is repeated gives the same spans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from proxy.telemetry import attributes as names
from proxy.telemetry.otlp_values import attributes, clean, nanoseconds
from proxy.telemetry.trace_context import span_id, trace_of

if TYPE_CHECKING:
    from proxy.core.model import JsonObject
    from proxy.telemetry.exported_event import ExportedEvent
    from proxy.telemetry.trace_context import Sampler, TraceContext

MAX_NAME = 256
_FLAGS_KNOWN = 0x100  # "it is known whether the parent is remote"
_REMOTE = 0x200


def spans(event: ExportedEvent, sampler: Sampler, more: JsonObject) -> list[Span]:
    """Return the spans that an event completes; none where it completes none, or its trace is not sampled.

    `more` are attributes that an earlier event of the call had.
    """
    call_id = event.call_id
    if call_id is None or not _ends(event):
        return []
    trace = trace_of(call_id, event.detail.get("traceparent"))
    if not sampler(trace):
        return []
    own = _server_span(event, call_id, trace, more)
    upstream = event.number("upstream_ms")
    return [own] if upstream is None else [own, _client_span(event, call_id, trace, upstream, more)]


def _ends(event: ExportedEvent) -> bool:
    """Return whether nothing more comes of the call."""
    if event.kind == "completed":
        return True
    if event.kind != "decided" or event.text("method") is None or event.detail.get("sent_by") == "server":
        return False
    # A notification that passed has no answer, and so no other event.
    return event.fields.get("decision") != "allow" or event.fields.get("jsonrpc_id") is None


def _server_span(event: ExportedEvent, call_id: str, trace: TraceContext, more: JsonObject) -> Span:
    took = event.number("total_ms") or event.number("gate_ms") or 0.0
    said = names.operation(event) | names.request(event) | more | names.verdict(event)
    span = _span(event, Span.SPAN_KIND_SERVER, trace, took, said)
    span.span_id = span_id(call_id, "server")
    if trace.parent is not None:
        span.parent_span_id = trace.parent
        span.flags |= _REMOTE
    if event.kind == "decided":
        span.events.append(_guardrail(event))
    return span


def _client_span(event: ExportedEvent, call_id: str, trace: TraceContext, took: float, more: JsonObject) -> Span:
    said = names.operation(event) | names.request(event) | more | names.server(event)
    span = _span(event, Span.SPAN_KIND_CLIENT, trace, took, said)
    span.span_id, span.parent_span_id = span_id(call_id, "client"), span_id(call_id, "server")
    return span


def _span(
    event: ExportedEvent, kind: Span.SpanKind.ValueType, trace: TraceContext, took: float, said: JsonObject
) -> Span:
    target = said.get("gen_ai.tool.name") or said.get("gen_ai.prompt.name")
    failure = event.failure
    return Span(
        trace_id=trace.trace_id,
        flags=trace.flags | _FLAGS_KNOWN,
        name=clean(" ".join(filter(None, (event.text("method"), target))), MAX_NAME),
        kind=kind,
        start_time_unix_nano=nanoseconds(event.time - took / 1000),
        end_time_unix_nano=nanoseconds(event.time),
        attributes=attributes(said),
        status=Status(code=Status.STATUS_CODE_ERROR, message=failure) if failure else Status(),
    )


def _guardrail(event: ExportedEvent) -> Span.Event:
    """Return what the proxy decided in the server's place."""
    said = names.verdict(event)
    shown = {name: said.get(f"interlock.{name}") for name in ("decision", "reason", "rule", "rules", "audit_id")}
    return Span.Event(
        name="interlock.guardrail",
        time_unix_nano=nanoseconds(event.time),
        attributes=attributes({f"interlock.{name}": value for name, value in shown.items()}),
    )
