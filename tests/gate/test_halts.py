"""Halts through the gate: who is stopped, who is not, and what is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.core.approvals import Operator
from proxy.core.halts import Halt
from proxy.core.model import Answer, Call, Forward, Held, Pass, Reject
from proxy.core.proposals import State
from proxy.gate.halts import ActiveHalts, covers, why_halted
from proxy.twophase.review import ProposalReview
from tests.support.two_phase_fixture import CONTEXT, PAY, World, other, reason, replace_agent, reply

HOLD = {**PAY, "approval": {"how": "hold"}}


def halt(**scope: Any) -> Halt:
    return Halt("h1", "sends to strangers", "olga", 1.0, **scope)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path, rules=[HOLD])
    yield world
    await world.close()


SCOPES = [
    ({}, True),
    ({"agent": "bot"}, True),
    ({"agent": "BOT"}, True),
    ({"agent": "b*"}, True),
    ({"agent": "bo"}, False),
    ({"agent": "other"}, False),
    ({"server": "bank.example.com"}, True),
    ({"server": "BANK.example.com."}, True),
    ({"server": "bank.example.com:443"}, True),
    ({"server": "bank.example.com:8443"}, False),
    ({"server": "*.example.com"}, True),
    ({"server": "example.com"}, False),
    ({"tool": "read"}, True),
    ({"tool": "Read"}, True),
    ({"tool": "r*"}, True),
    ({"tool": "write"}, False),
    ({"agent": "bot", "server": "bank.example.com", "tool": "read"}, True),
    ({"agent": "bot", "server": "else", "tool": "read"}, False),
]


@pytest.mark.parametrize(("scope", "stopped"), SCOPES)
async def test_what_fits_a_halt_is_refused(world: World, scope: dict[str, str], stopped: bool) -> None:
    world.gate.halts.update([halt(**scope)])
    verdict = await world.inspect("read", {})
    assert isinstance(verdict, Answer if stopped else Forward)
    if stopped:
        assert reason(verdict) == "halted"
        assert "olga halted" in reply(verdict)["result"]["content"][0]["text"]
        assert "Sends to strangers." in reply(verdict)["result"]["content"][0]["text"]
        assert [(event.reason, event.detail["halt_id"]) for event in world.events] == [("halted", "h1")]
    world.gate.halts.update([])
    assert isinstance(await world.inspect("read", {}), Forward)


@pytest.mark.parametrize("spelling", ["Read", " read", "READ", "re\u200bad", "\uff52ead"])
async def test_no_spelling_of_a_tool_or_an_agent_gets_around_a_halt(world: World, spelling: str) -> None:
    world.gate.halts.update([halt(tool="read")])
    # Some of these are no names of tools, and refused for that before.
    assert reason(await world.inspect(spelling, {})) in ("halted", "bad_tool_call")
    world.gate.halts.update([halt(agent="read")])
    assert reason(await world.inspect("x", {}, context=replace_agent(CONTEXT, spelling))) == "halted"


METHODS = ["tools/list", "initialize", "ping", "resources/read", "tasks/result", "prompts/get"]


@pytest.mark.parametrize("method", METHODS)
async def test_a_halted_agent_may_ask_for_nothing(world: World, method: str) -> None:
    world.gate.halts.update([halt(agent="bot")])
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
    verdict = await world.gate.requests.inspect(json.dumps(body).encode(), CONTEXT)
    assert reply(verdict)["error"]["data"]["reason"] == "halted"


async def test_a_halted_agent_answers_nothing_and_takes_its_calls_back(world: World) -> None:
    world.gate.halts.update([halt(agent="bot")])
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}}
    assert await world.gate.requests.inspect(json.dumps(answer).encode(), CONTEXT) == Answer((), status=202)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert isinstance(await world.gate.requests.inspect(json.dumps(cancel).encode(), CONTEXT), Forward)


async def test_plain_requests_are_halted_too(world: World) -> None:
    plain = replace(CONTEXT, server="web.example", session=None)
    world.gate.halts.update([halt(tool="read")])
    assert await world.gate.requests.inspect(b"a=b", plain) == Pass()
    for scope in ({}, {"agent": "bot"}, {"server": "web.example"}):
        world.gate.halts.update([halt(**scope)])
        verdict = await world.gate.requests.inspect(b"a=b", plain)
        assert isinstance(verdict, Reject)
        assert (verdict.status, verdict.denial.reason) == (403, "halted")
        upload = world.gate.plain_requests.watch_upload(plain, (), 100)
        assert getattr(upload, "reason", None) == "halted"
        assert await world.gate.requests.inspect(b"", plain) != Pass()


async def test_proposals_and_commits_of_a_halted_tool_are_refused(world: World) -> None:
    world.set_rules([PAY])
    proposed = await world.propose()
    world.gate.halts.update([halt(tool="transfer_funds")])
    assert await world.commit(proposed) == "halted"
    assert await world.propose() == "halted"
    world.gate.halts.update([])
    assert isinstance(await world.commit(proposed), Forward)


async def test_a_call_that_waits_for_people_is_halted_before_it_goes_on(world: World) -> None:
    class Caller:
        def gone(self) -> bool:
            return False

        async def send(self, notification: Any) -> None: ...

    held = await world.inspect("transfer_funds", {"amount": 1})
    assert isinstance(held, Held)
    waiting = asyncio.ensure_future(held.wait(Caller()))
    while not (found := await world.store.proposals([State.PENDING])):
        await asyncio.sleep(0.01)
    world.gate.halts.update([halt(agent="bot")])
    await ProposalReview(world.store, world, lambda: world.now).approve(found[0].proposal_id, Operator("alice"), "ok")
    assert reason(await waiting) == "halted"


async def test_another_agent_goes_on(world: World) -> None:
    world.gate.halts.update([halt(agent="bot")])
    assert isinstance(await world.inspect("read", {}, context=replace_agent(other(session="s9"), "fine")), Forward)


def test_only_new_halts_are_told_of() -> None:
    halts = ActiveHalts([halt()])
    assert halts.update([halt()]) == ()
    assert halts.update([halt(), halt(agent="x")]) == (halt(agent="x"),)
    assert covers(halt(tool="t"), Call("tools/call", "s", "a", "t"))
    assert not covers(halt(tool="t"), Call("tools/list", "s", "a"))
    assert why_halted(halt(agent="x", tool="t")) == "olga halted agent x, tool t: Sends to strangers."
