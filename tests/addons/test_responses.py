"""Responses over HTTP: what the gate cannot take does not reach the client."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from mitmproxy import http

from addons import flow_state as flows
from addons.limits import ResponseChunk
from tests.addons.http_flows import addons, make_flow, reason, send
from tests.support.gate_fixture import World, call


async def test_a_response_that_cannot_be_handled_is_replaced_by_a_refusal() -> None:
    world = World()
    flow = await send(world.gate, make_flow(call()))
    flow.response = http.Response.make(200, b"gibberish")
    flow.response.headers["content-encoding"] = "unheard-of"
    addons(world.gate).responses.response(flow)
    assert (flow.response.status_code, reason(flow)) == (502, "internal_error")


async def test_a_stream_that_cannot_be_read_any_further_passes_nothing_on() -> None:
    world = World()
    flow = await send(world.gate, make_flow(call()))
    flow.response = http.Response.make(200, b"", {"content-type": "text/event-stream"})
    responses = addons(world.gate).responses
    responses.responseheaders(flow)
    rewriter = flows.state_of(flow).rewriter
    assert rewriter is not None
    rewriter.feed = mock.Mock(side_effect=ValueError)  # type: ignore[method-assign]
    chunk = ResponseChunk(flow, b"data: {}\n\n")
    assert responses.response_chunk(chunk) is None
    assert (chunk.is_read, chunk.out) == (False, [])


@pytest.mark.parametrize("status", [500, 200])
async def test_a_call_without_an_answer_is_recorded_as_such(status: int) -> None:
    world = World()
    flow = await send(world.gate, make_flow(call()))
    flow.response = http.Response.make(status, b"")
    addons(world.gate).responses.response(flow)
    ends: list[Any] = [event.outcome for event in world.events if event.kind == "completed"]
    assert ends == [f"http_{status}"]
