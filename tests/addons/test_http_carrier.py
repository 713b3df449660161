"""What becomes of an HTTP request by the gate's verdict."""

from __future__ import annotations

from unittest import mock

from proxy.core.model import Answer, Denial, Reject
from tests.addons.test_mcp import make_flow, reason, send
from tests.support.gate_fixture import World, call


async def test_a_rejection_is_answered_with_its_status() -> None:
    world = World()
    denial = Denial("secret_found", "no")
    world.gate.requests.inspect = mock.AsyncMock(return_value=Reject(denial, 403))  # type: ignore[method-assign]
    flow = await send(world.gate, make_flow(call()))
    assert (flow.response and flow.response.status_code, reason(flow)) == (403, "secret_found")


async def test_replies_reach_a_client_that_takes_events_only_as_events() -> None:
    world = World()
    answer = Answer(({"jsonrpc": "2.0", "id": 7, "result": {}},))
    world.gate.requests.inspect = mock.AsyncMock(return_value=answer)  # type: ignore[method-assign]
    flow = await send(world.gate, make_flow(call(), Accept="text/event-stream"))
    assert flow.response is not None
    assert flow.response.headers["content-type"] == "text/event-stream"
    assert (flow.response.content or b"").startswith(b"event: message\ndata: ")
