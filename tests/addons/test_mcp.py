"""Requests over HTTP: whatever the gate does, the addon forwards what it decided on or refuses."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest

from addons import flow_state as flows
from tests.addons.http_flows import make_flow, reason, send
from tests.support.gate_fixture import DENY, World, call


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
