"""The host at which agents propose rules, among fakes: nothing is ever forwarded to it, whatever fails."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from proxy.core.model import Answer, Context, Decision, Outcome, Principal, Reject
from proxy.core.rule_proposals import HOST, Room, RuleProposal, RuleState
from proxy.errors import AuditUnavailableError, PolicyError, StoreUnavailableError
from proxy.gate import rule_proposals
from proxy.gate.gate import Gate
from proxy.gate.rule_proposals import ATTEMPT_SECONDS, ATTEMPTS, RuleProposals
from proxy.policy.proposed_rule import CheckedRule, check_rule
from tests.support.gate_fixture import ALLOW, World, call, denial_of, only_reply

HERE = Context(Principal("bot"), HOST)
GIVEN = {"rule": {"id": "mine"}, "why": "notes"}


@dataclass
class Proposing(World):
    """A gate that takes proposals, with a store and a check that note what they get."""

    stored: list[RuleProposal] = field(default_factory=list)
    room: bool = True

    def __post_init__(self) -> None:
        opened = partial(RuleProposals, self, self.check, self, clock=lambda: self.now)
        self.gate = Gate(policy=lambda: self, redactor=self, sink=self, clock=lambda: self.now, rule_proposals=opened)

    def check(self, rule: object, agent: str, taken: Any) -> CheckedRule:
        self._step("check")
        return CheckedRule("mine", f"{agent}: {json.dumps(rule)}", 2)

    async def add(self, proposal: RuleProposal, room: Room) -> RuleProposal | None:
        self._step("store")
        assert room == Room()
        if not self.room:
            return None
        same = [one for one in self.stored if one.digest == proposal.digest]
        self.stored += [] if same else [proposal]
        return same[0] if same else proposal

    async def propose(self, arguments: Any = None, context: Context = HERE, **params: Any) -> Any:
        given = GIVEN if arguments is None else arguments
        return only_reply(await self.inspect(call("policy.propose", given, **params), context=context))


async def test_a_proposal_is_checked_stored_and_recorded_and_then_answered() -> None:
    world = Proposing()
    result = (await world.propose())["result"]
    (stored,) = world.stored
    assert (stored.agent, stored.why, stored.state, stored.created_at) == ("bot", "notes", RuleState.WAITING, 1000.0)
    assert result["structuredContent"]["proposal_id"] == stored.proposal_id
    steps = [step for step in world.order if step in ("check", "store", "record", "Answer")]
    assert steps == ["check", "store", "record", "Answer"]
    assert [event.kind for event in world.events] == ["rule_proposed", "decided"]
    assert {event.call_id for event in world.events} == {stored.call_id}
    assert (world.events[1].decision, world.events[1].reason) == ("allow", "rule_proposed")


async def test_the_same_rule_is_one_proposal() -> None:
    world = Proposing()
    first, second = (await world.propose())["result"], (await world.propose())["result"]
    assert first["structuredContent"] == second["structuredContent"]
    assert [event.kind for event in world.events] == ["rule_proposed", "decided", "decided"]


@pytest.mark.parametrize(
    ("step", "error", "reason"),
    [
        ("check", PolicyError("tols: did you mean 'tools'?"), "bad_rule_proposal"),
        ("check", RuntimeError("boom"), "internal_error"),
        ("check", RecursionError("deep"), "internal_error"),
        ("store", StoreUnavailableError("down"), "store_unavailable"),
        ("record", AuditUnavailableError("full"), "audit_unavailable"),
        ("decide", RuntimeError("boom"), "internal_error"),
        ("mask", RuntimeError("boom"), "internal_error"),
    ],
)
async def test_whatever_fails_refuses(step: str, error: Exception, reason: str) -> None:
    world = Proposing(fail={step: error})
    assert denial_of(await world.propose())["reason"] == reason
    if step != "record":
        assert world.stored == []


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        (Decision(Outcome.DENY, "policy_denied", "no-rules"), "policy_denied"),
        (Decision(Outcome.DENY, "policy_error", "broken"), "policy_error"),
        (Decision(Outcome.EXTERNAL, "external_unavailable", "ask"), "external_unavailable"),
        (Decision(Outcome.DENY, "default_deny"), None),
        (Decision(Outcome.TWO_PHASE, "two_phase_required", "all"), None),
    ],
)
async def test_a_rule_may_refuse_it_and_the_default_does_not(decision: Decision, reason: str | None) -> None:
    world = Proposing(decision=decision)
    answered = await world.propose()
    assert (denial_of(answered)["reason"] if reason else None) == reason
    assert len(world.stored) == (reason is None)


async def test_a_full_store_refuses_and_says_so() -> None:
    world = Proposing(room=False)
    assert denial_of(await world.propose())["reason"] == "too_many_rule_proposals"


async def test_an_agent_tries_so_often_a_minute_and_others_meanwhile() -> None:
    world = Proposing(fail={"check": PolicyError("no")})
    for _ in range(ATTEMPTS):
        assert denial_of(await world.propose())["reason"] == "bad_rule_proposal"
    assert denial_of(await world.propose())["reason"] == "too_many_rule_proposals"
    other = replace(HERE, principal=Principal("other"))
    assert denial_of(await world.propose(context=other))["reason"] == "bad_rule_proposal"
    world.now += ATTEMPT_SECONDS
    assert denial_of(await world.propose())["reason"] == "bad_rule_proposal"


async def test_what_is_known_of_attempts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_proposals, "MAX_AGENTS", 3)
    world = Proposing()
    for number in range(10):
        await world.propose(context=replace(HERE, principal=Principal(f"agent {number}")))
    assert len(world.gate.requests._rule_proposals._attempts) <= 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"rule": {}},
        {"rule": {}, "why": 5},
        {"rule": {}, "why": "  "},
        {"rule": [], "why": "x"},
        {**GIVEN, "operator": "ada"},
        {"rule": {"note": "secret"}, "why": "x"},
        {"rule": {"id": "x"}, "why": "x" * 501},
        {"rule": {"id": "x" * (65 << 10)}, "why": "x"},
    ],
    ids=range(9),
)
async def test_other_arguments_are_refused_before_they_are_checked(arguments: Any) -> None:
    world = Proposing()
    assert denial_of(await world.propose(arguments))["reason"] in ("bad_rule_proposal", "secret_found")
    assert "check" not in world.order


OTHERS: list[Any] = [
    call("other"),
    call("policy.propose", GIVEN, task={"ttl": 5}),
    {key: value for key, value in call("policy.propose", GIVEN).items() if key != "id"},
    [call("policy.propose", GIVEN), call("other")],
    {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}},
    {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "file:///etc/passwd"}},
    {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": ["x"]}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}},
    {"jsonrpc": "2.0", "id": 1, "method": "tasks/result", "params": {"taskId": "t"}},
    b"",
    b"plain",
    b"{",
    b"\x1f\x8b broken gzip",
    json.dumps({"0": call("policy.propose", GIVEN)}).encode(),
]


@pytest.mark.parametrize("message", OTHERS, ids=range(len(OTHERS)))
@pytest.mark.parametrize("session", [None, "s"])
async def test_nothing_is_ever_forwarded_and_nothing_passes(message: Any, session: str | None) -> None:
    world = Proposing(decision=ALLOW)
    verdict = await world.inspect(message, context=replace(HERE, session=session))
    assert isinstance(verdict, Answer | Reject)
    assert world.stored == []


async def test_a_client_that_asks_for_a_stream_is_told_there_is_none() -> None:
    world = Proposing()
    verdict = await world.inspect(b"", context=HERE)
    assert isinstance(verdict, Reject)
    assert verdict.status == 405
    assert world.events == [], "every client asks"


async def test_elsewhere_and_over_stdio_the_tool_is_one_like_any_other() -> None:
    world = Proposing()
    for context in (replace(HERE, transport="stdio"), replace(HERE, server=f"{HOST}:8080")):
        await world.forward(call("policy.propose", GIVEN), context=context)
    assert world.stored == []


async def test_a_refusal_by_default_names_the_way_to_propose() -> None:
    other = replace(HERE, server="files")
    refused = Proposing(decision=Decision(Outcome.DENY, "default_deny"))
    text = only_reply(await refused.inspect(call("t"), context=other))["result"]["content"][0]["text"]
    assert "policy.propose" in text
    ruled = Proposing(decision=Decision(Outcome.DENY, "policy_denied", "r"))
    assert "policy.propose" not in json.dumps(only_reply(await ruled.inspect(call("t"), context=other)))
    off = World(decision=Decision(Outcome.DENY, "default_deny"))
    assert "policy.propose" not in json.dumps(only_reply(await off.inspect(call("t"), context=other)))


async def test_what_is_said_of_proposing_is_the_form_that_is_taken() -> None:
    world = Proposing()
    listed = only_reply(await world.inspect({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, context=HERE))
    (tool,) = listed["result"]["tools"]
    said = tool["inputSchema"]["properties"]["rule"]["description"]
    example = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert check_rule(example, "reader").tests == 2
