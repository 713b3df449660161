"""Requests and responses over HTTP: whatever the gate does, the addon forwards what it decided on or refuses."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from addons import flow_state as flows
from addons.limits import Limits
from addons.mcp import McpGate
from proxy.core.model import Principal
from tests.support.gate_fixture import ALLOW, DENY, World, call

KEY = b"k" * 32


def make_flow(value: Any, method: str = "POST", **headers: str) -> http.HTTPFlow:
    flow = tflow.tflow()
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    flow.request = http.Request.make(method, "http://mcp.example.com/mcp", json.dumps(value), fields)
    state = flows.state_of(flow)
    state.principal, state.egress = Principal("bot"), ALLOW
    return flow


def addon(gate: Any) -> McpGate:
    return McpGate(gate, Limits(), KEY, mock.Mock(stopping=False), lambda _: 0)


async def send(gate: Any, flow: http.HTTPFlow) -> http.HTTPFlow:
    pending = addon(gate).request(flow)
    if pending is not None:
        await pending
    return flow


def reason(flow: http.HTTPFlow) -> str:
    assert flow.response is not None
    found: str = json.loads(flow.response.content or b"")["error"]["data"]["reason"]
    return found


async def test_an_allowed_call_is_forwarded_in_its_canonical_form() -> None:
    flow = await send(World().gate, make_flow(call(), Transfer_Encoding="chunked"))
    assert flow.response is None
    assert flow.request.content == json.dumps(call(), separators=(",", ":")).encode()
    assert flow.request.headers["content-length"] == str(len(flow.request.content))
    router = flows.state_of(flow).router
    assert router is not None
    assert router.in_flight is not None


async def test_a_denied_call_is_answered_here() -> None:
    flow = await send(World(decision=DENY).gate, make_flow(call()))
    assert flow.response is not None
    assert json.loads(flow.response.content or b"")["result"]["isError"] is True
    assert flows.state_of(flow).answered


@pytest.mark.parametrize("verdict", ["Forward", None, object()])
async def test_an_unknown_verdict_is_refused_and_recorded(verdict: Any) -> None:
    world = World()
    world.gate.requests.inspect = mock.AsyncMock(return_value=verdict)  # type: ignore[method-assign]
    flow = await send(world.gate, make_flow(call()))
    assert (flow.response and flow.response.status_code, reason(flow)) == (502, "internal_error")
    assert [(event.kind, event.reason) for event in world.events] == [("request_refused", "internal_error")]


async def test_a_response_that_cannot_be_handled_is_replaced_by_a_refusal() -> None:
    world = World()
    flow = await send(world.gate, make_flow(call()))
    flow.response = http.Response.make(200, b"gibberish")
    flow.response.headers["content-encoding"] = "unheard-of"
    addon(world.gate).response(flow)
    assert (flow.response.status_code, reason(flow)) == (502, "internal_error")
