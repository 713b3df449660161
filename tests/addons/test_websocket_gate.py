"""A proxy that stops takes no more from a WebSocket than it takes requests."""

from __future__ import annotations

from unittest import mock

from mitmproxy.test import tflow

from addons import http_flows, websocket_gate
from proxy.model import Principal


async def test_a_message_that_comes_while_the_proxy_stops_is_refused(monkeypatch):
    said: list[bytes] = []
    monkeypatch.setattr(websocket_gate, "_inject", lambda _flow, body, **_: said.append(body))
    flow, gate = tflow.twebsocketflow(), mock.Mock()
    flow.metadata[http_flows.PRINCIPAL] = Principal("agent")
    message = next(each for each in flow.websocket.messages if each.from_client)
    flow.websocket.messages = [message]
    await websocket_gate.WebsocketGate(gate, 1 << 20, b"k" * 32, lambda: True).websocket_message(flow)
    assert message.dropped
    assert b"stopping" in said[0]
    gate.inspect.assert_not_called()
    assert gate.note.call_args.args[:2] == ("request_refused", "stopping")
