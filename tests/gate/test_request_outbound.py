"""What is not MCP, through the gate: secrets reported or refused, large arguments decided aside."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import Context, Forward, Pass, Redaction, Reject
from proxy.wire.body import READ_AT_ONCE
from tests.support.gate_fixture import ALLOW, BOOM, CONTEXT, MASK, World, call, denial_of, only_reply
from tests.support.timeouts import PATIENCE

PLAIN = b'{"a": "secret"}'


def going(action: Any, target: str = "/") -> Context:
    redaction = Redaction("no-secrets", ("secrets",), frozenset({"request"}), action)
    return replace(CONTEXT, target=target, egress=replace(ALLOW, redactions=(redaction,)))


async def test_a_plain_request_with_a_secret_is_refused_where_none_may_go():
    world = World()
    verdict = await world.inspect(PLAIN, context=going("deny"))
    assert isinstance(verdict, Reject)
    assert (verdict.status, verdict.denial.reason, verdict.denial.rule) == (403, "secret_found", "no-secrets")
    (event,) = world.events
    assert (event.kind, event.reason, event.decision, event.rule) == (
        "request_refused",
        "secret_found",
        "deny",
        "no-secrets",
    )
    assert [finding.detector for finding in event.redactions] == ["secrets.test"]
    assert "secrets.test" in verdict.denial.text
    assert event.event_id == verdict.denial.audit_id


async def test_a_plain_request_with_a_secret_passes_and_is_told_of_where_it_is_reported():
    world = World()
    assert isinstance(await world.inspect(PLAIN, context=going("report")), Pass)
    (event,) = world.events
    assert (event.kind, event.reason, event.decision) == ("request_reported", "secret_found", "allow")


async def test_a_plain_request_without_a_secret_leaves_no_event():
    world = World()
    assert isinstance(await world.inspect(b"hello", context=going("deny")), Pass)
    assert isinstance(await world.inspect(PLAIN, context=CONTEXT), Pass)
    assert world.events == []


async def test_what_cannot_be_read_is_refused_or_told_of():
    headers = [("Content-Encoding", "rot13")]
    for action, kind in (("deny", Reject), ("report", Pass)):
        world = World()
        assert isinstance(await world.inspect(b"xyz", headers, going(action)), kind)
        assert world.events[0].reason == "unknown_encoding"


@pytest.mark.parametrize("action", ["deny", "report"])
@pytest.mark.parametrize("body", [PLAIN, b"", PLAIN + b" " * READ_AT_ONCE])
async def test_a_request_that_cannot_be_looked_through_is_refused(action: str, body: bytes):
    world = World(fail={"mask": BOOM})
    verdict = await world.inspect(body, context=going(action))
    assert isinstance(verdict, Reject)
    assert verdict.denial.reason == "internal_error"


async def test_an_mcp_message_may_not_carry_a_secret_in_its_head_either():
    world = World()
    reply = only_reply(await world.inspect(call(), [("X-Data", "secret")], going("deny")))
    assert denial_of(reply)["reason"] == "secret_found"
    assert denial_of(reply)["rule"] == "no-secrets"
    assert (world.events[-1].kind, len(world.events[-1].redactions)) == ("decided", 1)
    assert isinstance(await world.inspect(call(arguments={"a": "secret"}), (), going("deny")), Forward)


async def test_an_mcp_message_whose_head_is_only_reported_is_forwarded_and_the_finding_recorded():
    world = World()
    await world.forward(call(), headers=[("X-Data", "secret")], context=going("report"))
    assert [finding.path for finding in world.events[-1].redactions] == ["$"]


async def test_the_head_of_a_streaming_upload_is_looked_at_before_anything_goes():
    world = World()
    denial = world.gate.plain_requests.watch_upload(going("deny"), [("X-Data", "secret")], 100)
    assert denial is not None
    assert denial.reason == "secret_found"
    assert world.gate.plain_requests.watch_upload(CONTEXT, [("X-Data", "secret")], 100) is None


async def test_a_secret_that_began_beside_the_answer_is_told_of_with_it():
    world = World(replace(ALLOW, redactions=(MASK,)))
    in_flight = (await world.forward(call())).in_flight
    world.gate.responses.mask_aside(in_flight, {"method": "notifications/message", "params": {"data": "secret"}})
    world.gate.responses.observe(in_flight, {"jsonrpc": "2.0", "id": 7, "result": {"a": "fine"}}, b"raw")
    assert len(world.events[-1].redactions) == 1


class Blocking(World):
    """A world in which one step on large arguments waits until it is let go."""

    step = "decide"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reached, self.go = threading.Event(), threading.Event()

    def _step(self, name: str) -> None:
        super()._step(name)
        if name == self.step and threading.current_thread() is not threading.main_thread():
            self.reached.set()
            assert self.go.wait(PATIENCE)


LARGE = {"text": "x" * 10_000_000}


@pytest.mark.parametrize("step", ["decide", "mask"])
async def test_another_call_is_served_while_large_arguments_are_decided_masked_and_recorded(step: str):
    world = Blocking(replace(ALLOW, redactions=(MASK,)))
    world.step = step
    large = asyncio.create_task(world.inspect(call(arguments=LARGE, request_id=1)))
    assert await asyncio.to_thread(world.reached.wait, PATIENCE)
    assert isinstance(await world.inspect(call(request_id=2)), Forward)
    assert not large.done()
    world.go.set()
    verdict = await asyncio.wait_for(large, PATIENCE)
    assert isinstance(verdict, Forward)
    assert verdict.message.value["params"]["arguments"] == LARGE


@pytest.mark.parametrize("step", ["decide", "mask", "record"])
async def test_a_large_call_is_refused_whatever_fails_on_its_way(step: str):
    world = World(replace(ALLOW, redactions=(MASK,)), fail={step: BOOM})
    reply = only_reply(await world.inspect(call(arguments=LARGE)))
    assert denial_of(reply)["reason"] == "internal_error"


async def test_a_large_call_is_recorded_before_it_is_forwarded():
    world = World(replace(ALLOW, redactions=(MASK,)))
    await world.inspect(json.dumps(call(arguments=LARGE)).encode())
    assert world.order == ["decide", "mask", "mask", "record", "Forward"]


async def test_of_two_calls_of_one_id_that_are_decided_at_once_only_one_is_forwarded():
    world = Blocking()
    large = asyncio.create_task(world.inspect(call(arguments=LARGE)))
    assert await asyncio.to_thread(world.reached.wait, PATIENCE)
    reply = only_reply(await world.inspect(call()))
    assert denial_of(reply)["reason"] == "id_in_use"
    world.go.set()
    assert isinstance(await asyncio.wait_for(large, PATIENCE), Forward)
