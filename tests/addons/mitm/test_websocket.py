"""What control frames of a WebSocket may carry, and which end is a breach; live: tests/daemon/test_websocket.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest import mock

import pytest
from mitmproxy.test import tflow
from wsproto import events as wsevents
from wsproto.connection import ConnectionState

from addons import flow_state
from addons.mitm.websocket import MAX_CONTROL, GuardedWebsocketLayer
from tests.support.tls_fixture import context


@pytest.fixture
def layer() -> GuardedWebsocketLayer:
    flow = tflow.twebsocketflow()
    flow_state.state_of(flow)
    made = GuardedWebsocketLayer(context(), flow, 1 << 20)
    made.client_ws = mock.Mock(state=ConnectionState.OPEN)
    made.server_ws = mock.Mock(state=ConnectionState.OPEN)
    return made


def guard(layer: GuardedWebsocketLayer) -> None:
    """Let no secrets go there."""
    state = flow_state.state_of(layer.flow)
    state.egress = mock.Mock(redactions=(mock.Mock(action="deny"),))


def from_client(layer: GuardedWebsocketLayer, *frames: Any) -> list[Any]:
    def read() -> Iterable[Any]:
        return iter(frames)

    return list(layer._without_hidden_text(read))  # type: ignore[arg-type]


def test_a_control_frame_that_could_be_a_message_goes_on_without_its_payload(layer: GuardedWebsocketLayer) -> None:
    hidden = b'{"jsonrpc": "2.0", "method": "tools/call", "id": 1}'
    ping, pong, plain = from_client(layer, wsevents.Ping(hidden), wsevents.Pong(hidden), wsevents.Ping(b"keep-alive"))
    assert (ping.payload, pong.payload, plain.payload) == (b"", b"", b"keep-alive")
    (close,) = from_client(layer, wsevents.CloseConnection(1000, hidden.decode()))
    assert (close.code, close.reason) == (1000, "")


def test_where_no_secret_may_go_a_control_frame_is_short(layer: GuardedWebsocketLayer) -> None:
    long, short = wsevents.Ping(b"x" * (MAX_CONTROL + 1)), wsevents.Ping(b"x" * MAX_CONTROL)
    assert [frame.payload for frame in from_client(layer, long, short)] == [long.payload, short.payload]
    guard(layer)
    assert [frame.payload for frame in from_client(layer, long, short)] == [b"", short.payload]


def test_a_message_goes_on_as_it_is(layer: GuardedWebsocketLayer) -> None:
    message = wsevents.TextMessage('{"jsonrpc": "2.0"}')
    assert from_client(layer, message) == [message]


@pytest.mark.parametrize(("state", "broken"), [(ConnectionState.OPEN, True), (ConnectionState.REMOTE_CLOSING, False)])
def test_an_end_that_nobody_asked_for_is_a_breach(
    layer: GuardedWebsocketLayer, state: ConnectionState, broken: bool
) -> None:
    layer.client_ws.state = state
    from_client(layer, wsevents.CloseConnection(1002, "protocol error"))
    assert layer._is_broken is broken
