"""Which streams may carry the proxy's own notification, and what leaves a session's stream."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from mitmproxy import http

from addons.sse_rewriter import EventStream
from proxy.core.model import Call, Context, Decision, InFlightCall, Kind, Message, Outcome, Principal
from proxy.gate.router import ResponseRouter

CONTEXT = Context(Principal("bot"), "mcp.example.com")
SESSION = Context(Principal("bot"), "mcp.example.com", session="s1")


@dataclass
class StubGate:
    heard: list[Any] = field(default_factory=list)

    def mask_aside(self, _exchange: object, value: object) -> object:
        return value

    def bring(self, _exchange: object, value: object) -> tuple[object, ...]:
        return ()

    def take_message(self, context: Context, value: object) -> None:
        return None

    def find(self, context: Context, message_id: object) -> None:
        return None

    def on_unmatched_response(self, context: Context, value: dict[str, Any]) -> dict[str, Any]:
        self.heard.append(value)
        return value


def stream(context: Context, method: str | None = None, **params: Any) -> EventStream:
    in_flight = None
    if method is not None:
        message = Message(Kind.REQUEST, {"params": params}, method, "id-1")
        call, decision = Call(method, context.server, "bot"), Decision(Outcome.ALLOW, "x")
        in_flight = InFlightCall("c", message, context, call, decision, 0.0, 0.0)
    request = http.Request.make("GET", "http://mcp.example.com/sse")
    return EventStream(ResponseRouter(StubGate(), context, in_flight, b"k" * 32), request, 1 << 20)  # type: ignore[arg-type]


def passed(events: EventStream, chunk: bytes) -> bytes:
    return b"".join(events.feed(chunk))


def message_of(event: bytes | None) -> dict[str, Any]:
    assert event is not None
    assert event.endswith(b"\n\n")
    found: dict[str, Any] = json.loads(event.split(b"data: ")[1])
    return found


def test_a_sessions_own_stream_carries_the_notification() -> None:
    assert message_of(stream(SESSION).tools_changed(None)) == {
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
        "params": {},
    }
    assert stream(SESSION).tools_changed("mcp.example.com") is not None
    assert stream(SESSION).tools_changed("other.example.com") is None


def test_a_legacy_stream_carries_it_once_it_has_named_its_endpoint() -> None:
    legacy = stream(CONTEXT)
    assert legacy.tools_changed(None) is None
    passed(legacy, b"event: endpoint\ndata: /messages/?session_id=1\n\n")
    assert legacy.tools_changed(None) is not None


def test_a_subscription_carries_it_under_its_id_after_the_first_event() -> None:
    listening = stream(CONTEXT, "subscriptions/listen", notifications={"toolsListChanged": True})
    assert listening.tools_changed(None) is None, "nothing may come before the acknowledgement"
    passed(listening, b": hello\n\n")
    assert listening.tools_changed(None) is None
    passed(listening, b'data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}\n\n')
    sent = message_of(listening.tools_changed(None))
    assert sent["params"] == {"_meta": {"io.modelcontextprotocol/subscriptionId": "id-1"}}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"notifications": {"toolsListChanged": True}}),
        ("subscriptions/listen", {"notifications": {"promptsListChanged": True}}),
        ("subscriptions/listen", {"notifications": {"toolsListChanged": "yes"}}),
        ("subscriptions/listen", {}),
    ],
)
def test_other_answers_carry_nothing(method: str, params: dict[str, Any]) -> None:
    answering = stream(SESSION, method, **params)
    passed(answering, b"data: {}\n\n")
    assert answering.tools_changed(None) is None


def test_what_cannot_be_read_is_left_out_of_a_sessions_stream() -> None:
    unreadable = b'id: 4\ndata: {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"x","n":' + b"9" * 5000 + b"}]}}\n\n"
    assert passed(stream(SESSION), unreadable) == b": removed\n\n"
    assert passed(stream(CONTEXT), unreadable) == unreadable, "a stream that is not MCP's is left alone"
    assert passed(stream(SESSION), b"id: 1\ndata: \n\n") == b"id: 1\ndata: \n\n", "a priming event stays"
