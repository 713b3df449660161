"""What a lane learns from a request that the layers have judged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mitmproxy.test.tflow import tflow

from addons.flow_state import FlowState, forward_as_json, head
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
    assert lesson.key[0] + b"2" + lesson.key[1] == RAW
    forwarded = lesson.before + b"2" + lesson.after
    assert forwarded == RAW.replace(b"\r\n\r\n", b"\r\naccept-encoding: identity\r\n\r\n")
    assert lesson.credentials == ["Basic x"]
    assert ("accept-encoding", "identity") not in list(lesson.head)  # the headers are those that came


@pytest.mark.parametrize(
    "raw", [b"", RAW.replace(b"host: a", b"expect: 100-continue"), RAW.replace(b"content-length: 2\r\n", b"")]
)
def test_what_is_not_plain_teaches_nothing(raw: bytes) -> None:
    assert learn(raw) is None


def test_a_legacy_message_teaches_nothing() -> None:
    assert learn(transport="sse") is None
