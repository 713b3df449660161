"""Streams through Interlock: the first event at once, keep-alives, resumption, and denials beside them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.acceptance.python_routes import Mode, Route, Routes, Server
from tests.support.timeouts import PATIENCE

MODES: tuple[Mode, ...] = ("direct", "connect", "reverse")
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(params=MODES)
def route(request: pytest.FixtureRequest, routes: Routes) -> Route:
    """Lead to a server that keeps events and sends a keep-alive every 0.2 s."""
    return routes.to(request.param, Server("python_modern", ("--resumable", "--ping", "0.2")))


async def shake_hands(http: httpx2.AsyncClient) -> dict[str, str]:
    """Open a session and give the headers that later requests need."""
    version = "2025-11-25"
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    answer = await http.post("/mcp", json=message(0, "initialize", params), headers=ACCEPT)
    session = ACCEPT | {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": version}
    ready = await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
    assert ready.status_code == 202
    return session


def message(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(number: int, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    meta = {"progressToken": f"p{number}"}
    return message(number, "tools/call", {"name": tool, "arguments": arguments, "_meta": meta})


async def events(response: httpx2.Response) -> AsyncIterator[dict[str, str]]:
    """Return each event of the stream as its fields; a comment is an event with the field ''."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif fields:
            yield fields
            fields = {}


async def test_the_first_event_is_not_held_back_until_the_last(route: Route) -> None:
    async with asyncio.timeout(PATIENCE / 2), route.http() as http:
        session = await shake_hands(http)
        arrived: list[str] = []
        body = call(1, "slow", {"ms": 60_000})
        async with http.stream("POST", "/mcp", json=body, headers=session) as response:
            async for event in events(response):
                if event.get("data"):
                    arrived.append(event["data"])
                    route.server.wake()  # it has been seen while the tool still runs
    assert "notifications/progress" in arrived[0]
    assert "slept 60000 ms" in arrived[-1]


async def test_a_stream_stays_open_on_keep_alives_while_calls_are_denied_beside_it(route: Route) -> None:
    async with asyncio.timeout(PATIENCE), route.http() as http:
        session = await shake_hands(http)
        pings = 0
        async with http.stream("GET", "/mcp", headers=session) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            async for event in events(response):
                pings += "" in event
                if pings == 3:
                    denied = await http.post("/mcp", json=call(2, "danger", {}), headers=session)
                    assert denied.status_code == 200
                if pings == 6:
                    break
    assert pings == 6
    if route.interlock:
        assert "danger" not in route.executed()


async def test_a_cut_stream_is_resumed_by_its_last_event_id(route: Route) -> None:
    async with asyncio.timeout(PATIENCE), route.http() as http:
        session = await shake_hands(http)
        last = await cut_after_progress(http, session)
        answer = await resume(http, session, last)
    assert answer["id"] == 3
    assert "slept 600 ms" in answer["result"]["content"][0]["text"]


async def cut_after_progress(http: httpx2.AsyncClient, session: dict[str, str]) -> str:
    """Begin a slow call, leave after its progress notification, and give that event's id."""
    body = call(3, "slow", {"ms": 600})
    async with http.stream("POST", "/mcp", json=body, headers=session) as response:
        async for event in events(response):
            if "notifications/progress" in event.get("data", ""):
                return event["id"]
    raise AssertionError("no progress came")


async def resume(http: httpx2.AsyncClient, session: dict[str, str], last: str) -> dict[str, Any]:
    """Take the stream up where it was cut, and give the first message that comes.

    A server that has not yet seen the old stream's end closes the new one at once, so a client asks again.
    """
    for _ in range(400):
        async with http.stream("GET", "/mcp", headers=session | {"Last-Event-ID": last}) as response:
            async for event in events(response):
                last = event.get("id", last)
                if event.get("data"):
                    answer: dict[str, Any] = json.loads(event["data"])
                    return answer
        await asyncio.sleep(0.05)
    raise AssertionError("the stream was never taken up")
