"""Connections and requests in progress: counted, given deadlines, and killed where they are not HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mitmproxy.connection import Client, Server
from mitmproxy.http import Headers, HTTPFlow, Request, Response
from mitmproxy.tcp import TCPFlow
from mitmproxy.udp import UDPFlow

from addons import connections
from addons.connections import ConnectionGuard
from addons.flow_state import state_of
from proxy.core.identity import Identity
from proxy.core.model import Principal

PATIENCE = 10.0


class Gate:
    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []
        self.recorder = self

    def now(self) -> float:
        return 1_763_000_000.0

    def record_refusal(self, kind: str, reason: str, _: Any, **__: Any) -> None:
        self.notes.append((kind, reason))


def client() -> Client:
    return Client(peername=("c", 1), sockname=("p", 2))


def flow_of(method: str = "POST") -> HTTPFlow:
    made = HTTPFlow(client(), Server(address=("s", 3)), live=True)
    made.request = Request.make(method, "http://s/mcp")
    return made


@pytest.fixture
def gate() -> Gate:
    return Gate()


def guard_of(gate: Gate, body_seconds: float = 60.0) -> ConnectionGuard:
    return ConnectionGuard(
        gate,  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        connection_limit=1,
        first_request_seconds=60.0,
        body_seconds=body_seconds,
        default_agent="agent",
    )


async def test_a_stop_waits_for_requests_in_progress(gate: Gate) -> None:
    guard, first, second = guard_of(gate), flow_of(), flow_of()
    assert await guard.drained(0.01)
    guard.requestheaders(first)
    guard.requestheaders(second)
    guard.response(first)
    assert not await guard.drained(0.01)
    guard.error(second)
    assert await guard.drained(0.01)


@pytest.mark.parametrize(("method", "waits"), [("GET", False), ("POST", True)])
async def test_a_stop_does_not_wait_for_a_servers_own_event_stream(gate: Gate, method: str, waits: bool) -> None:
    guard, flow = guard_of(gate), flow_of(method)
    guard.requestheaders(flow)
    flow.response = Response.make(200, b"", Headers(content_type="text/event-stream; charset=utf-8"))
    guard.responseheaders(flow)
    assert await guard.drained(0.01) is not waits


async def test_bodies_that_are_overdue_end_in_turn_and_those_that_came_do_not(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    both = asyncio.Event()

    def end(flow: HTTPFlow) -> None:
        ended.append(flow.id)
        if len(ended) == 2:
            both.set()

    monkeypatch.setattr(connections, "_end_overdue_body", end)
    guard, flows = guard_of(gate, body_seconds=0.02), [flow_of() for _ in range(3)]
    for flow in flows:
        guard.requestheaders(flow)
    guard.request(flows[1])
    async with asyncio.timeout(PATIENCE):
        await both.wait()
    assert ended == [flows[0].id, flows[2].id]


async def test_a_flow_that_a_limit_ended_is_recorded(gate: Gate) -> None:
    guard, refused, failed = guard_of(gate), flow_of(), flow_of()
    state_of(refused).refused = "body_too_large"
    guard.error(refused)
    guard.error(failed)
    assert gate.notes == [("request_refused", "body_too_large")]


@pytest.mark.parametrize(("hook", "kind"), [("tcp_start", TCPFlow), ("udp_start", UDPFlow)])
async def test_what_is_not_http_is_killed_and_recorded(gate: Gate, hook: str, kind: Any) -> None:
    flow = kind(client(), Server(address=("s", 3)), live=True)
    getattr(guard_of(gate), hook)(flow)
    assert flow.error is not None
    assert gate.notes == [("connection_refused", "not_http")]


@pytest.mark.parametrize("left", [-5.0, 0.01])
async def test_a_stream_ends_with_the_token_that_opened_it(gate: Gate, left: float, monkeypatch: Any) -> None:
    ended: list[Client] = []
    monkeypatch.setattr(connections, "_close_connection", lambda client, _: ended.append(client))
    guard, flow, other, closed = guard_of(gate), flow_of(), flow_of(), flow_of()
    for each, expires in ((flow, gate.now() + left), (other, gate.now() + 60), (closed, gate.now() + left)):
        identity = Identity("okta", "https://id", "bot", "k", expires=expires)
        state_of(each).principal = Principal("okta:bot", authenticated=True, identity=identity)
        guard.websocket_start(each)
    guard.websocket_end(closed)
    async with asyncio.timeout(PATIENCE):
        while not ended:
            await asyncio.sleep(0.005)
    assert ended == [flow.client_conn]
    assert gate.notes == [("request_refused", "token_expired")]
    guard.websocket_end(other)
    assert not guard._expiries
