"""Where a server spoke MCP, nothing but one strict message passes; no agent can make others believe that it did."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import Answer, Context, Forward, InFlightCall, Pass, Principal, Reject
from proxy.errors import SharedCallsUnavailableError
from proxy.gate import mcp_endpoints as module
from proxy.gate.mcp_endpoints import McpEndpoints
from proxy.wire.mcp import read_head
from tests.support.gate_fixture import CONTEXT, World, call

HERE = replace(CONTEXT, target="/mcp")
OTHER = b'{"a":1}'
HEAD = read_head([])
RESULT = {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}


async def forwarded(world: World, message: dict[str, Any], context: Context = HERE) -> InFlightCall:
    verdict = await world.inspect(message, context=context)
    assert isinstance(verdict, Forward)
    return verdict.in_flight


async def answered(world: World, message: dict[str, Any], response: dict[str, Any], context: Context = HERE) -> None:
    in_flight = await forwarded(world, message, context)
    world.gate.responses.observe(in_flight, response, json.dumps(response).encode())


async def test_what_is_not_mcp_passes_until_the_server_spoke_mcp_there() -> None:
    world = World()
    assert isinstance(await world.inspect(OTHER, context=HERE), Pass)
    await answered(world, call(), RESULT)
    verdict = await world.inspect(OTHER, context=HERE)
    assert isinstance(verdict, Reject)
    assert verdict.denial.reason == "not_mcp"
    assert world.events[-1].reason == "not_mcp"
    assert isinstance(await world.inspect(b"", context=HERE), Pass)
    assert isinstance(await world.inspect(call(request_id=8), context=HERE), Forward)


@pytest.mark.parametrize(
    "target", ["/mcp/", "//mcp", "/MCP", "/%6dcp", "/x/../mcp", "/mcp;a=1", "/mcp?x=1", "/x\\..\\mcp"]
)
async def test_an_endpoint_is_known_under_every_name_that_routers_take(target: str) -> None:
    world = World()
    await answered(world, call(), RESULT)
    assert isinstance(await world.inspect(OTHER, context=replace(HERE, target=target)), Reject)


@pytest.mark.parametrize("where", [{"target": "/rest"}, {"target": "/mcp/token"}, {"server": "other.example"}])
async def test_other_paths_and_servers_are_not_concerned(where: dict[str, str]) -> None:
    world = World()
    await answered(world, call(), RESULT)
    assert isinstance(await world.inspect(OTHER, context=replace(HERE, **where)), Pass)


PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
HELLO = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}


@pytest.mark.parametrize(
    ("message", "response"),
    [
        (call(), {"jsonrpc": "2.0", "id": 7, "error": {"code": -32601, "message": "no such method"}}),
        (call(), {"jsonrpc": "2.0", "id": 7, "result": "pong"}),
        (PING, {"jsonrpc": "2.0", "id": 7, "result": {}}),
        (HELLO, {"jsonrpc": "2.0", "id": 7, "result": {"ok": True}}),
    ],
    ids=["an error", "a result of no form", "a ping", "another initialize"],
)
async def test_an_answer_that_other_services_give_teaches_nothing(
    message: dict[str, Any], response: dict[str, Any]
) -> None:
    world = World()
    await answered(world, message, response)
    assert isinstance(await world.inspect(OTHER, context=HERE), Pass)


async def test_what_an_agent_sends_teaches_nothing() -> None:
    world = World()
    await forwarded(world, call())
    assert isinstance(await world.inspect(OTHER, context=HERE), Pass)


@pytest.mark.parametrize("name", ["Mcp-Session-Id", "mcp-protocol-version", "Mcp-Name"])
async def test_a_request_with_a_header_of_mcps_carries_a_message_or_nothing(name: str) -> None:
    assert isinstance(await World().inspect(OTHER, [(name, "x")], context=HERE), Reject)
    assert isinstance(await World().inspect(b"", [(name, "x")], context=HERE), Pass)


async def test_a_websocket_that_spoke_mcp_speaks_nothing_else() -> None:
    world, socket = World(), replace(CONTEXT, transport="websocket", session="flow-1")
    await answered(world, call(), RESULT, socket)
    assert isinstance(await world.inspect(OTHER, context=socket), Reject)
    assert isinstance(await world.inspect(OTHER, context=replace(socket, session="flow-2")), Pass)


def test_a_setting_names_endpoints() -> None:
    endpoints = McpEndpoints(["mcp.example.com/*", "*:8443/Tools"])
    named = replace(HERE, server="mcp.example.com", target="/anything?x=1")
    assert endpoints.takes_only_mcp(named, HEAD)
    assert endpoints.takes_only_mcp(replace(HERE, server="a:8443", target="/tools/"), HEAD)
    assert not endpoints.takes_only_mcp(replace(HERE, server="example.com"), HEAD)


async def test_an_agent_that_fills_its_share_takes_nothing_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OF_AGENT", 2)
    world = World()
    for number in range(4):
        await answered(world, call(request_id=number), RESULT, replace(HERE, target=f"/{number}"))
    other = replace(HERE, principal=Principal("other"), target="/theirs")
    await answered(world, call(), RESULT, other)
    known = [
        isinstance(await world.inspect(OTHER, context=replace(HERE, target=t)), Reject) for t in ("/1", "/2", "/theirs")
    ]
    assert known == [True, False, True]


class Shared:
    """What workers share, which cannot be reached."""

    def add_mcp_endpoint(self, *_: str) -> None:
        raise SharedCallsUnavailableError("gone")

    def is_mcp_endpoint(self, *_: str) -> bool:
        raise SharedCallsUnavailableError("gone")


async def test_where_it_cannot_be_known_what_is_not_mcp_is_refused() -> None:
    world = World()
    in_flight = await forwarded(world, call())
    endpoints = McpEndpoints(shared_calls=Shared())  # type: ignore[arg-type]
    world.gate.requests._endpoints = endpoints
    assert isinstance(await world.inspect(OTHER, context=HERE), Reject)
    endpoints.learn(in_flight, RESULT)  # the answer itself passes
    assert endpoints.takes_only_mcp(HERE, HEAD)


@pytest.mark.parametrize("body", [b"", OTHER, json.dumps(PING).encode()], ids=["empty", "other", "a message"])
async def test_a_call_in_the_query_is_refused_whatever_the_body(body: bytes) -> None:
    context = replace(HERE, target="/mcp?method=tools/call&params[name]=danger")
    world = World()
    assert isinstance(await world.inspect(body, context=context), Reject | Answer)
    assert world.events[-1].reason == "call_in_fields"
