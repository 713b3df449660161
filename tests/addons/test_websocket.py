"""A proxy that stops takes no more from a WebSocket than it takes requests; one that floods it keeps nobody waiting."""

from __future__ import annotations

import asyncio
from unittest import mock

from mitmproxy.test import tflow

from addons import flow_state, websocket
from proxy.core.model import Pass, Principal


async def test_a_message_that_comes_while_the_proxy_stops_is_refused(monkeypatch):
    said: list[bytes] = []
    monkeypatch.setattr(websocket, "_inject", lambda _flow, body, **_: said.append(body))
    flow, gate = tflow.twebsocketflow(), mock.Mock()
    flow_state.state_of(flow).principal = Principal("agent")
    message = next(each for each in flow.websocket.messages if each.from_client)
    flow.websocket.messages = [message]
    await websocket.WebsocketGate(gate, 1 << 20, b"k" * 32, mock.Mock(stopping=True)).websocket_message(flow)
    assert message.dropped
    assert b"stopping" in said[0]
    gate.requests.inspect.assert_not_called()
    assert gate.recorder.record_refusal.call_args.args[:2] == ("request_refused", "stopping")


async def test_others_have_their_turn_before_each_message():
    order: list[str] = []

    async def inspect(*_: object, **__: object) -> Pass:
        order.append("inspected")
        return Pass()

    flow, gate = tflow.twebsocketflow(), mock.Mock(requests=mock.Mock(inspect=inspect))
    flow_state.state_of(flow).principal = Principal("agent")
    flow.websocket.messages = [next(each for each in flow.websocket.messages if each.from_client)]
    asyncio.get_running_loop().call_soon(order.append, "another's turn")
    await websocket.WebsocketGate(gate, 1 << 20, b"k" * 32, mock.Mock(stopping=False)).websocket_message(flow)
    assert order == ["another's turn", "inspected"]


async def test_an_unknown_verdict_drops_the_message():
    flow, gate = tflow.twebsocketflow(), mock.Mock()
    gate.requests.inspect = mock.AsyncMock(return_value="Forward")
    flow_state.state_of(flow).principal = Principal("agent")
    message = next(each for each in flow.websocket.messages if each.from_client)
    flow.websocket.messages = [message]
    await websocket.WebsocketGate(gate, 1 << 20, b"k" * 32, mock.Mock(stopping=False)).websocket_message(flow)
    assert message.dropped
