"""Limits through the gate: what counts, what is refused, and what is given back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.core.approvals import Operator
from proxy.core.model import Answer, Forward, Held, Kind
from proxy.core.proposals import State
from proxy.errors import AuditUnavailableError, StoreUnavailableError
from proxy.gate.gate import Gate
from proxy.gate.limits import CallLimits
from proxy.twophase.review import ProposalReview
from tests.support.two_phase_fixture import CONTEXT, World, other, reason, replace_agent, reply, structure

MAILS = {"id": "mails", "tools": ["send_mail"], "count": 2, "within": "1h", "description": "Few mails"}
MONEY = {"id": "money", "tools": ["pay"], "sum": {"arg": "amount", "max": 100}, "within": "1d"}
ALICE = Operator("alice")


class Caller:
    def gone(self) -> bool:
        return False

    async def send(self, notification: Any) -> None: ...


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path, rules=[])
    yield world
    await world.close()


def limit(world: World, *limits: dict[str, Any], rules: list[dict[str, Any]] | None = None) -> None:
    world.limits = list(limits)
    world.set_rules(rules or [])


def denial(verdict: Any) -> Any:
    return reply(verdict)["result"]["_meta"]["mcp-interlock/denial"]


async def made(world: World, tool: str = "send_mail", arguments: Any = None, **more: Any) -> bool:
    return isinstance(await world.inspect(tool, arguments or {}, **more), Forward)


async def settled(world: World) -> None:
    """Wait until everything that is given back has been."""
    await asyncio.sleep(0)
    await asyncio.gather(*world.gate.limits._ending)


async def test_the_call_too_many_is_refused_with_when_to_try_again(world: World) -> None:
    limit(world, MAILS)
    assert await made(world)
    world.now += 600
    assert await made(world)
    verdict = await world.inspect("send_mail", {})
    said = denial(verdict)
    assert said == {
        "reason": "limit_exceeded",
        "rule": "mails",
        "audit_id": said["audit_id"],
        "retryable": True,
        "retry_after": 3000,
    }
    text = reply(verdict)["result"]["content"][0]["text"]
    assert "Rule mails: Few mails (2 of 2 calls in 1h are used)." in text
    assert "room for it again in 3000 s" in text
    (event,) = [event for event in world.events if event.decision == "deny"]
    assert (event.reason, event.rule) == ("limit_exceeded", "mails")
    assert event.detail["limits"] == [{"limit": "mails", "kind": "count", "used": "2", "max": "2"}]
    world.now += 3000
    assert await made(world)
    assert not await made(world)


async def test_each_agent_has_its_own_budget_however_a_tool_is_spelt(world: World) -> None:
    limit(world, MAILS)
    assert [await made(world, tool) for tool in ("send_mail", "Send_Mail", " send_mail")] == [True, True, False]
    assert await made(world, context=replace_agent(CONTEXT, "another"))
    assert not await made(world, context=replace_agent(CONTEXT, "BOT"))


PER = [
    ("all", [{}, {"agent": "b"}], False),
    ("agent", [{}, {"server": "else.example"}], False),
    ("agent", [{}, {"agent": "b"}], True),
    ("server", [{}, {"agent": "b"}], False),
    ("server", [{}, {"server": "else.example"}], True),
    ("tool", [{}, {"tool": "Other_mail"}], True),
    ("tool", [{}, {"tool": "SEND_MAIL", "agent": "b"}], False),
    ("session", [{}, {"session": "s2"}], True),
    ("session", [{}, {"session": "s1"}], False),
    ("session", [{"session": None}, {"session": None}], False),
    (["agent", "tool"], [{}, {"tool": "other_mail"}], True),
    (["agent", "tool"], [{}, {"server": "else.example"}], False),
    ("rule", [{"tool": "send_mail"}, {"tool": "other_mail"}], True),
    ("rule", [{"tool": "other_mail"}, {"tool": "third_mail"}], False),
]


@pytest.mark.parametrize(("per", "calls", "second"), PER)
async def test_calls_are_counted_together_as_per_says(
    world: World, per: Any, calls: list[dict[str, Any]], second: bool
) -> None:
    rules = [{"id": "one", "action": "allow", "tools": ["send_mail"]}]
    limit(world, {**MAILS, "count": 1, "tools": ["*mail", "*MAIL"], "per": per}, rules=rules)
    answers = []
    for change in calls:
        fields = {name: value for name, value in change.items() if name not in ("tool", "agent")}
        context = replace_agent(other(**fields), change.get("agent", "bot"))
        answers.append(await made(world, change.get("tool", "send_mail"), context=context))
    assert answers == [True, second]


async def test_sums_are_exact_and_a_call_too_large_is_never_retried(world: World) -> None:
    limit(world, MONEY)
    assert [await made(world, "pay", {"amount": a}) for a in (0.1, 0.2, "99.7", 0)] == [True] * 4
    assert denial(await world.inspect("pay", {"amount": "0.000000000000000001"}))["retry_after"] == 86_400
    large = denial(await world.inspect("pay", {"amount": 100.5}))
    assert large["retryable"] is False
    assert "retry_after" not in large


AMOUNTS = [
    *(
        {},
        {"amount": None},
        {"amount": "many"},
        {"amount": True},
        {"amount": [1]},
        {"amount": {"x": 1}},
        {"amount": ""},
    ),
    *({"amount": -1}, {"amount": -0.01}, {"amount": "-1"}, {"amount": "+1"}, {"amount": "1e3"}, {"amount": "1,000"}),
    *({"amount": "1_000"}, {"amount": " 1"}, {"amount": "0x10"}, {"amount": "NaN"}, {"amount": "Infinity"}),
    *({"amount": "\u0661"}, {"amount": "1" * 61}, {"amount": "0." + "0" * 18 + "1"}, {"amount": 1e300}),
    *({"amount": 1, "Amount": 1}, {"AMOUNT": 1, "amount": 2}, {"amount": "1\n"}, {"amount": "\uff11"}),
]


@pytest.mark.parametrize("arguments", AMOUNTS, ids=repr)
async def test_what_is_no_amount_is_refused(world: World, arguments: Any) -> None:
    limit(world, MONEY)
    said = denial(await world.inspect("pay", arguments))
    assert (said["reason"], said["rule"], said["retryable"]) == ("limit_amount", "money", False)


async def test_several_amounts_of_one_call_add_up(world: World) -> None:
    limit(world, {**MONEY, "sum": {"arg": "items[*].price", "max": 10}})
    assert await made(world, "pay", {"items": [{"price": 4}, {"price": "5.5"}]})
    assert not await made(world, "pay", {"items": [{"price": 0.25}, {"price": 0.26}]})
    assert reason(await world.inspect("pay", {"items": []})) == "limit_amount"


async def test_a_denied_call_costs_nothing_and_a_limit_with_a_condition_counts_what_it_is_about(world: World) -> None:
    deny = {"id": "no", "action": "deny", "tools": ["send_mail"], "when": {"arg": "to", "equals": "eve"}}
    about = {**MAILS, "count": 1, "when": {"arg": "to", "ends_with": "@example.com"}}
    limit(world, about, rules=[deny])
    assert reason(await world.inspect("send_mail", {"to": "eve"})) == "policy_denied"
    assert [await made(world, arguments={"to": to}) for to in ("x@else", "a@example.com", "x@else")] == [True] * 3
    assert not await made(world, arguments={"to": "b@example.com"})
    assert reason(await world.inspect("send_mail", {"to": 5})) in ("wrong_type", "limit_exceeded")


@pytest.mark.parametrize("more", [{"action": "report"}, {"mode": "shadow"}])
async def test_what_only_records_lets_the_call_pass_and_says_so(world: World, more: dict[str, Any]) -> None:
    limit(world, {**MAILS, "count": 1, **more})
    assert [await made(world) for _ in range(3)] == [True] * 3
    decided = [event for event in world.events if event.kind == "decided"]
    assert [event.shadow_rules for event in decided] == [(), ("mails",), ("mails",)]
    assert decided[2].detail["limits"][0]["used"] == "2"


async def test_what_is_not_forwarded_is_given_back(world: World) -> None:
    limit(world, {**MAILS, "count": 1})
    world.fail = AuditUnavailableError("full")
    assert reason(await world.inspect("send_mail", {})) == "audit_unavailable"
    world.fail = None
    await settled(world)
    verdict = await world.inspect("send_mail", {})
    assert isinstance(verdict, Forward)
    verdict.in_flight.unsent = True
    world.gate.responses.abandon(verdict.in_flight, "upstream_error")
    await settled(world)
    verdict = await world.inspect("send_mail", {})
    assert isinstance(verdict, Forward)
    world.gate.responses.abandon(verdict.in_flight, "upstream_error")
    await settled(world)
    assert not await made(world)


async def test_places_are_free_when_calls_end(world: World) -> None:
    limit(world, {"id": "few", "tools": ["send_mail"], "concurrency": 2, "per": "server"})
    first = await world.inspect("send_mail", {})
    assert isinstance(first, Forward)
    assert await made(world)
    said = denial(await world.inspect("send_mail", {}, context=replace_agent(CONTEXT, "another")))
    assert (said["reason"], said["retry_after"]) == ("limit_exceeded", 1)
    await world.answer(first)
    await settled(world)
    assert await made(world)
    assert not await made(world)


async def test_a_notification_takes_a_place_for_no_longer_than_it_takes_to_send(world: World) -> None:
    limit(world, {"id": "few", "concurrency": 1})
    body = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "t", "arguments": {}}}
    for _ in range(3):
        verdict = await world.gate.requests.inspect(json.dumps(body).encode(), CONTEXT)
        assert isinstance(verdict, Forward)
        assert verdict.message.kind is Kind.NOTIFICATION
        await settled(world)


async def test_people_decide_on_the_call_too_many_and_it_counts_once(world: World) -> None:
    limit(world, {**MONEY, "action": "two_phase"})
    assert await made(world, "pay", {"amount": 90})
    held = await world.inspect("pay", {"amount": 20})
    assert isinstance(held, Held)
    waiting = asyncio.ensure_future(held.wait(Caller()))
    while not (found := await world.store.proposals([State.PENDING])):
        await asyncio.sleep(0.01)
    assert found[0].rule == "money"
    await ProposalReview(world.store, world, lambda: world.now).approve(found[0].proposal_id, ALICE, "fine")
    assert isinstance(await waiting, Forward)
    (used,) = await world.gate.limits.store.usage([('["money",', 86_400)])
    assert (used.used, used.calls) == (110 * 10**18, 2)
    assert await made(world, "pay", {"amount": 0}) is False


async def test_people_may_be_asked_by_a_proposal_too(world: World) -> None:
    limit(world, {**MONEY, "action": "two_phase", "approval": "human"})
    small = structure(await world.inspect("pay_propose", {"amount": 90}))
    assert small["status"] == "not_required"
    assert await made(world, "pay", {"amount": 90})
    assert reason(await world.inspect("pay", {"amount": 20})) == "two_phase_required"
    assert (await world.propose({"amount": 20}, tool="pay"))["status"] == "pending"
    (found,) = await world.store.proposals([State.PENDING])
    await ProposalReview(world.store, world, lambda: world.now).approve(found.proposal_id, ALICE, "fine")
    proposed = await world.propose({"amount": 20}, tool="pay")
    assert isinstance(await world.commit(proposed, {"amount": 20}, tool="pay"), Forward)
    assert await world.commit(proposed, {"amount": 20}, tool="pay") == "nonce_replay"
    await settled(world)
    (used,) = await world.gate.limits.store.usage([('["money",', 86_400)])
    assert used.used == 110 * 10**18


class Broken:
    async def reserve(self, *_: Any) -> Any:
        raise StoreUnavailableError("away")

    look = reserve


@pytest.mark.parametrize("store", [None, Broken()])
async def test_what_cannot_be_counted_is_refused(world: World, store: Any) -> None:
    limit(world, MAILS)
    gate = Gate(
        policy=lambda: world.policy, redactor=world.gate.recorder._redactor, sink=world, limits=CallLimits(store)
    )
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send_mail", "arguments": {}}}
    assert reason(await gate.requests.inspect(json.dumps(body).encode(), CONTEXT)) == "store_unavailable"
    body["params"] = {"name": "read_mail", "arguments": {}}
    assert isinstance(await gate.requests.inspect(json.dumps(body).encode(), CONTEXT), Forward)


async def test_64_callers_at_once_are_never_one_too_many(world: World) -> None:
    limit(world, {**MAILS, "count": 20})
    contexts = [other(session=f"s{n}") for n in range(64)]
    verdicts = await asyncio.gather(*(world.inspect("send_mail", {}, context=each) for each in contexts))
    assert sum(isinstance(verdict, Forward) for verdict in verdicts) == 20
    assert sum(isinstance(verdict, Answer) for verdict in verdicts) == 44
