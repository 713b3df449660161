"""What a lane learns from a request that the layers have judged."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace

import pytest
from mitmproxy.test.tflow import tflow

from addons.flow_state import FlowState, forward_as_json, head
from addons.lane.heads import request_key
from addons.lane.template import Lesson, lesson_of, with_forwarded
from tests.support.gate_fixture import CONTEXT

HTTP = replace(CONTEXT, transport="http")
RAW = b"POST /mcp HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n"


def learn(raw: bytes = RAW, transport: str = "http") -> Lesson | None:
    flow = tflow()
    lines = raw.split(b"\r\n")[1:-2]
    flow.request.headers.fields = tuple(tuple(line.split(b": ", 1)) for line in lines)  # type: ignore[misc]
    flow.request.method, flow.request.path = "POST", "/mcp"
    flow.request.data.authority = b""
    state = FlowState(raw_head=raw, credentials=["Basic x"])
    lesson = lesson_of(flow, state, replace(HTTP, transport=transport), head(flow.request))
    if lesson is None:
        return None
    forward_as_json(flow.request, b"{}", {})
    return with_forwarded(lesson, flow.request)


def test_a_plain_request_teaches_its_head_and_what_is_forwarded() -> None:
    lesson = learn()
    assert lesson is not None
    assert lesson.key == request_key(RAW)
    forwarded = lesson.forwarded.fill((), 2)
    assert forwarded == RAW.replace(b"\r\n\r\n", b"\r\naccept-encoding: identity\r\n\r\n")
    assert lesson.credentials == ["Basic x"]
    assert ("accept-encoding", "identity") not in list(lesson.judged.head)  # the headers are those that came


VARIED = RAW.replace(
    b"content-length",
    b"Mcp-Session-Id: s-1\r\nmcp-protocol-version: 2025-06-18\r\ntraceparent: 00-1\r\n"
    b"x-request-id: 7\r\ncontent-length",
)


def test_the_gate_reads_the_values_of_the_call_and_not_those_of_the_lesson() -> None:
    lesson = learn(VARIED)
    assert lesson is not None
    assert lesson.with_values(lesson.key.values) is lesson.judged
    new = (b"s-2", b"2025-11-25", b"00-2", b"8")
    context, read = lesson.with_values(new)
    assert (context.session, context.revision, context.traceparent) == ("s-2", "2025-11-25", "00-2")
    assert replace(context, session=HTTP.session, revision=HTTP.revision, traceparent=HTTP.traceparent) == HTTP
    assert dict(read.mcp) == {"mcp-session-id": "s-2", "mcp-protocol-version": "2025-11-25"}
    assert dict(read)["x-request-id"] == "8"
    assert dict(read)["Mcp-Session-Id"] == "s-2"
    assert b"Mcp-Session-Id: s-2\r\n" in lesson.forwarded.fill(new, 2)


@pytest.mark.parametrize(
    "more", [b"TRACEPARENT: 00-2\r\n", b"traceparent: \r\n", b"x-request-id: a  b\r\n", b"Mcp-Session-Id: s-1\r\n"]
)
def test_a_field_that_stands_twice_teaches_nothing(more: bytes) -> None:
    assert learn(VARIED.replace(b"content-length", more + b"content-length")) is None


@pytest.mark.parametrize(
    "raw", [b"", RAW.replace(b"host: a", b"expect: 100-continue"), RAW.replace(b"content-length: 2\r\n", b"")]
)
def test_what_is_not_plain_teaches_nothing(raw: bytes) -> None:
    assert learn(raw) is None


def test_a_legacy_message_teaches_nothing() -> None:
    assert learn(transport="sse") is None


HELD = b"ilkph_key_ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@pytest.mark.parametrize(
    "field", [b"authorization: Bearer " + HELD, b"authorization: Basic " + b64encode(b"me:" + HELD), b"x-key: " + HELD]
)
def test_a_head_with_a_placeholder_teaches_nothing(field: bytes) -> None:
    assert learn(RAW.replace(b"content-length", field + b"\r\ncontent-length")) is None


def test_a_placeholder_in_a_field_that_varies_is_told_to_the_gate() -> None:
    lesson = learn(VARIED)
    assert lesson is not None
    assert not lesson.judged.head.is_marked
    assert not lesson.with_values((b"s-2", b"2025-11-25", b"00-2", b"8")).head.is_marked
    assert lesson.with_values((b"s-2", b"2025-11-25", b"00-2", HELD)).head.is_marked
