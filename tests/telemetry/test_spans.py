from __future__ import annotations

import pytest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from proxy.telemetry.spans import spans
from proxy.telemetry.trace_context import make_sampler
from tests.support.telemetry_events import (
    CALL,
    COMPLETED,
    DENIED,
    FINDING,
    HOSTILE,
    NOW,
    PARENT,
    TRACE_ID,
    exported,
    hostile,
)  # fmt: skip

ALL = make_sampler("always_on")


def values(found: list[KeyValue]) -> dict[str, object]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in found}


def test_a_completed_call_has_a_server_span_in_the_clients_trace_and_a_client_span_in_it() -> None:
    server, client = spans(exported(COMPLETED), ALL, {})
    assert (server.kind, client.kind) == (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT)
    assert server.name == client.name == "tools/call read_file"
    assert server.trace_id.hex() == client.trace_id.hex() == TRACE_ID
    assert server.parent_span_id.hex() == PARENT
    assert client.parent_span_id == server.span_id != client.span_id
    assert server.end_time_unix_nano == client.end_time_unix_nano == round((NOW + 0.25) * 1e6) * 1000
    assert server.end_time_unix_nano - server.start_time_unix_nano == 250_000_000
    assert client.end_time_unix_nano - client.start_time_unix_nano == 240_000_000
    assert server.status.code == Status.STATUS_CODE_UNSET
    assert (server.flags, client.flags) == (0x301, 0x101)
    assert values(server.attributes)["interlock.decision"] == "allow"
    assert values(client.attributes)["server.address"] == "files.example"


def test_a_denied_call_has_one_span_with_the_guardrails_verdict() -> None:
    (span,) = spans(exported(DENIED), ALL, {})
    said = values(span.attributes)
    assert span.kind == Span.SPAN_KIND_SERVER
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert said["error.type"] == said["interlock.reason"] == span.status.message == "policy_denied"
    assert said["interlock.audit_id"] == CALL["call_id"]
    (event,) = span.events
    assert event.name == "interlock.guardrail"
    assert values(event.attributes)["interlock.rule"] == "no-system-paths"
    assert values(event.attributes)["interlock.decision"] == "deny"


def test_a_call_that_was_allowed_has_its_spans_when_it_completes() -> None:
    assert spans(exported(CALL), ALL, {}) == []
    assert spans(exported(FINDING), ALL, {}) == []
    (notification,) = spans(exported(CALL | {"jsonrpc_id": None, "method": "notifications/initialized"}), ALL, {})
    assert notification.kind == Span.SPAN_KIND_SERVER


def test_what_a_server_sent_is_no_call_of_the_clients() -> None:
    assert spans(exported(DENIED | {"detail": {"sent_by": "server"}}), ALL, {}) == []


def test_a_call_without_context_begins_a_trace() -> None:
    server, client = spans(exported(COMPLETED | {"detail": {}}), ALL, {})
    assert server.parent_span_id == b""
    assert server.trace_id == client.trace_id != bytes(16)
    assert server.flags == 0x100


def test_a_span_made_again_is_the_same_span() -> None:
    first, again = (spans(exported(COMPLETED), ALL, {}) for _ in range(2))
    assert [one.SerializeToString(deterministic=True) for one in first] == [
        one.SerializeToString(deterministic=True) for one in again
    ]


def test_a_trace_that_is_not_sampled_has_no_spans() -> None:
    unsampled = COMPLETED | {"detail": {"traceparent": f"00-{TRACE_ID}-{PARENT}-00"}}
    assert spans(exported(unsampled), make_sampler("parentbased_always_on"), {}) == []
    assert len(spans(exported(unsampled), ALL, {})) == 2


@pytest.mark.parametrize("outcome", ["tool_error", "upstream_error", "interrupted", "http_503"])
def test_a_call_that_failed_has_the_status_of_an_error(outcome: str) -> None:
    for span in spans(exported(COMPLETED | {"outcome": outcome}), ALL, {}):
        assert span.status.code == Status.STATUS_CODE_ERROR
        assert values(span.attributes)["error.type"] == outcome


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_any_name_can_be_sent(text: str) -> None:
    event = exported(hostile(text) | {"kind": "decided"}, with_arguments=True)
    (span,) = spans(event, ALL, {})
    assert len(Span.FromString(span.SerializeToString()).name) <= 256
