"""What becomes of an HTTP request by the gate's verdict."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from addons.flow_state import state_of
from proxy.core.model import Answer, Denial, Pass, Reject
from proxy.core.vault import Credential, Filling, Secret
from proxy.gate.gate import Gate
from tests.addons.test_mcp import make_flow, reason, send
from tests.support.gate_fixture import World, call
from tests.support.vault_fixture import FakeVault


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


HELD = "ilkph_key_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
VAULT = FakeVault((Credential(name="key", placeholder=HELD, hosts=("mcp.example.com",), plain=True),))


async def test_what_needs_a_credential_is_put_in_when_it_is_sent_and_not_before() -> None:
    gate = Gate(policy=World, redactor=World(), sink=World(), vault=replace(VAULT, values={"key": b"the-real-value"}))
    filling = Filling(("key",), (), {HELD: Secret(b"the-real-value")})
    gate.requests.inspect = mock.AsyncMock(return_value=Pass(filling))  # type: ignore[method-assign]
    flow = await send(gate, make_flow(call(), X_Key=HELD))
    assert (flow.response, flow.request.headers["x-key"]) == (None, HELD)
    assert state_of(flow).filling is filling


@pytest.mark.parametrize(("hosts", "status"), [(("mcp.example.com",), None), (("other.example",), 403)])
async def test_what_carries_a_refusal_to_a_legacy_client_has_its_credentials(
    hosts: tuple[str, ...], status: int | None
) -> None:
    credential = Credential(name="key", placeholder=HELD, hosts=hosts, plain=True)
    vault = FakeVault((credential,), values={"key": b"the-real-value"})
    gate = Gate(policy=World, redactor=World(), sink=World(), vault=vault)
    answer = Answer(({"jsonrpc": "2.0", "id": 7, "result": {}},))
    gate.requests.inspect = mock.AsyncMock(return_value=answer)  # type: ignore[method-assign]
    flow = make_flow(call(), X_Key=HELD)
    flow.request.path = "/messages?session_id=1"
    await send(gate, flow)
    assert (flow.response.status_code if flow.response else None) == status
    filling = state_of(flow).filling
    assert (filling.names if filling else ()) == (() if status else ("key",))
