"""The way back: each message goes to the call that it answers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import InFlightCall
from proxy.gate.router import ResponseRouter, subscription, tools_changed
from proxy.wire.sse_ping_carrier import carrier
from tests.support.gate_fixture import ALLOW, CONTEXT, MASK, World, call

KEY = b"k" * 32
MASKING = replace(ALLOW, redactions=(MASK,))


async def begin(world: World, request: dict[str, Any] | None = None) -> InFlightCall:
    return (await world.forward(request or call(request_id=1))).in_flight


def rewrite(responses: ResponseRouter, value: Any) -> list[Any] | None:
    payloads = responses.rewrite(json.dumps(value).encode())
    return None if payloads is None else [json.loads(payload) for payload in payloads]


async def test_an_answer_is_the_own_calls_or_that_of_another_of_its_session() -> None:
    world = World(decision=MASKING)
    own, other = await begin(world), await begin(world, call(request_id=2))
    responses = ResponseRouter(world.gate.responses, CONTEXT, own)
    answer = {"jsonrpc": "2.0", "id": 2, "result": {"text": "secret"}}
    assert rewrite(responses, answer) == [{**answer, "result": {"text": "***"}}]
    assert (own.closed, other.closed) == (False, True)
    assert rewrite(responses, {"jsonrpc": "2.0", "id": 1, "result": {}}) is None
    assert own.closed


async def test_the_digest_is_of_the_bytes_that_are_passed_on_message_by_message() -> None:
    world = World(decision=MASKING)
    router = ResponseRouter(world.gate.responses, CONTEXT, await begin(world))
    await begin(world, call(request_id=2))
    for number in (1, 2):
        answer = {"jsonrpc": "2.0", "id": number, "result": {"text": "secret", "more": f"\u00e9{number}"}}
        (payload,) = router.rewrite(json.dumps(answer).encode()) or []
        assert json.loads(payload) == {**answer, "result": {**answer["result"], "text": "***"}}
        assert world.events[-1].result_digest == hashlib.sha256(payload).hexdigest()


async def test_members_of_an_array_are_taken_one_by_one() -> None:
    world = World(decision=MASKING)
    responses = ResponseRouter(world.gate.responses, CONTEXT, await begin(world))
    values = [{"jsonrpc": "2.0", "method": "x"}, {"jsonrpc": "2.0", "id": 1, "result": {"t": "secret"}}]
    assert rewrite(responses, values) == [[values[0], {**values[1], "result": {"t": "***"}}]]


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"t":"secret"},"result":{"t":"plain"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"t":"secret","t":"plain"}}',
        b'[{"jsonrpc":"2.0","id":7,"id":1,"result":{"t":"plain"}}]',
        b'{"jsonrpc":"2.0","id":1,"result":{"rows":[%b{}],"t":"secret","t":"plain"}}' % (b'{"n":1},' * 5000),
        b'{"jsonrpc":"2.0","id":1,"result":{"long":"%b","t":"secret","t":"plain"}}' % (b"so it goes " * 5000),
    ],
)
async def test_what_names_a_member_twice_is_passed_on_as_it_was_read(body: bytes) -> None:
    world = World(decision=MASKING)
    responses = ResponseRouter(world.gate.responses, CONTEXT, await begin(world))
    (payload,) = responses.rewrite(body) or []
    assert json.loads(payload) == json.loads(body)
    assert b"secret" not in payload
    assert payload.count(b'"t"') == payload.count(b'"id"') == 1


async def test_what_cannot_be_read_is_withheld_where_results_are_masked() -> None:
    world = World(decision=MASKING)
    responses = ResponseRouter(world.gate.responses, CONTEXT, await begin(world))
    (payload,) = responses.rewrite(b"{half") or []
    assert json.loads(payload)["id"] == 1
    assert b"unreadable_response" in payload


@pytest.mark.parametrize(("transport", "left"), [("stdio", []), ("sse", []), ("websocket", None)])
def test_in_a_session_what_is_no_message_is_left_out(transport: Any, left: list[bytes] | None) -> None:
    responses = ResponseRouter(World().gate.responses, replace(CONTEXT, transport=transport), None)
    assert responses.rewrite(b"chatter") == left


def test_answers_that_were_sealed_are_opened_by_the_key_alone() -> None:
    answer = {"jsonrpc": "2.0", "id": 9, "result": {}}
    echoed = {"jsonrpc": "2.0", "id": carrier([answer], KEY)["id"], "result": {}}
    assert rewrite(ResponseRouter(World().gate.responses, CONTEXT, None, KEY), echoed) == [answer]
    assert rewrite(ResponseRouter(World().gate.responses, CONTEXT, None), echoed) is None


async def test_a_subscription_to_tools_is_known_and_others_are_not() -> None:
    def listen(**wanted: bool) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {"notifications": wanted}}

    params = subscription(await begin(World(), listen(toolsListChanged=True)))
    assert params == {"_meta": {"io.modelcontextprotocol/subscriptionId": 1}}
    assert tools_changed(params)["method"] == "notifications/tools/list_changed"
    assert subscription(await begin(World(), listen(promptsListChanged=True))) is None
    assert subscription(await begin(World())) is None
