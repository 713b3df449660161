"""Proposing and committing at the gate, with the real store."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.core.model import Answer, Forward, Principal
from proxy.core.proposals import State
from proxy.policy.rules import PolicyFile
from proxy.twophase.tokens import KeyRing, SigningKey
from tests.support.two_phase_fixture import (
    ARGUMENTS,
    CONTEXT,
    PAY,
    RING,
    STABLE,
    UNSTABLE,
    Make,
    World,
    other,
    reason,
    reply,
)


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[World] = []

    def build(*rules: dict[str, Any], **more: Any) -> World:
        world = World(tmp_path, **({"rules": list(rules)} if rules else {}), **more)
        made.append(world)
        return world

    yield build
    for world in made:
        await world.close()


async def test_a_proposal_is_answered_with_a_token_and_nothing_is_forwarded(make: Make) -> None:
    answer = await make().propose()
    assert answer.keys() == {"status", "proposal_id", "commit_token", "expires_at", "composite_score", "signals"}
    assert answer["status"] == "allowed"
    assert answer["composite_score"] == 0.0
    assert answer["signals"] == {"output_instability": 0.0, "numeric_variance": 0.0}
    assert answer["expires_at"] == "1970-01-12T13:51:40Z"


async def test_a_commit_is_forwarded_as_the_tool_itself_without_the_token(make: Make) -> None:
    world = make()
    forward = await world.commit(await world.propose())
    assert isinstance(forward, Forward)
    assert forward.message.params == {"name": "transfer_funds", "arguments": ARGUMENTS}


async def test_a_commit_changes_the_header_that_names_the_tool(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    given = {**ARGUMENTS, **{name: proposed[name] for name in ("proposal_id", "commit_token")}}
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "transfer_funds_commit", "arguments": given},
    }
    headers = [("Mcp-Method", "tools/call"), ("Mcp-Name", "transfer_funds_commit"), ("Mcp-Param-To", "bob")]
    forward = await world.gate.requests.inspect(json.dumps(body).encode(), CONTEXT, headers)
    assert isinstance(forward, Forward)
    assert forward.headers == {"Mcp-Name": "transfer_funds", "Mcp-Param-To": "bob"}


async def test_a_token_works_once(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    assert isinstance(await world.commit(proposed), Forward)
    assert await world.commit(proposed) == "nonce_replay"
    assert len(world.forwarded) == 1


async def test_of_many_at_once_one_commits(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    outcomes = await asyncio.gather(*(world.commit(proposed) for _ in range(20)))
    assert sum(isinstance(outcome, Forward) for outcome in outcomes) == 1
    assert outcomes.count("nonce_replay") == 19


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"commit_token": ""}, "bad_signature"),
        ({"commit_token": None}, "bad_signature"),
        ({"commit_token": {"a": 1}}, "bad_signature"),
        ({"commit_token": "ilk1.k1.e30.AAAA"}, "bad_signature"),
        ({"proposal_id": ""}, "unknown_proposal"),
        ({"proposal_id": "0198c0de-0000-7000-8000-000000000000"}, "unknown_proposal"),
        ({"proposal_id": 7}, "unknown_proposal"),
    ],
)
async def test_a_commit_with_other_fields_is_refused_and_burns_nothing(
    make: Make, change: dict[str, Any], expected: str
) -> None:
    world = make()
    proposed = await world.propose()
    assert await world.commit({**proposed, **change}) == expected
    assert isinstance(await world.commit(proposed), Forward)


@pytest.mark.parametrize(
    "arguments",
    [
        {"amount": 101, "to": "bob"},
        {"amount": "100", "to": "bob"},
        {"amount": 100, "to": "bob", "memo": ""},
        {"amount": 100},
        {"amount": 100, "to": "Bob"},
        {"amount": 2**60, "to": "bob"},
        {},
    ],
)
async def test_a_commit_of_other_arguments_is_refused_and_burns_nothing(make: Make, arguments: Any) -> None:
    world = make()
    proposed = await world.propose()
    assert await world.commit(proposed, arguments) == "args_hash_mismatch"
    assert isinstance(await world.commit(proposed), Forward)


async def test_equal_arguments_however_spelt_are_the_same(make: Make) -> None:
    world = make()
    assert isinstance(await world.commit(await world.propose(), {"to": "bob", "amount": 100.0}), Forward)


async def test_a_commit_of_another_tool_server_or_caller_is_refused(make: Make) -> None:
    world = make({**PAY, "tools": ["transfer_funds", "transfer_more"]})
    proposed = await world.propose()
    assert await world.commit(proposed, tool="transfer_more") == "args_hash_mismatch"
    assert await world.commit(proposed, context=other(server="evil.example.com")) == "args_hash_mismatch"
    assert await world.commit(proposed, context=other(principal=Principal("mallory"))) == "args_hash_mismatch"
    assert isinstance(await world.commit(proposed, context=other(session="s2")), Forward)


async def test_a_token_expires(make: Make) -> None:
    world = make({**PAY, "token_seconds": 60})
    proposed = await world.propose()
    world.now += 60
    assert await world.commit(proposed) == "expired"
    world.now -= 0.001
    assert isinstance(await world.commit(proposed), Forward)


async def test_a_token_from_the_future_is_refused(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    world.now -= 31
    assert await world.commit(proposed) == "expired"
    world.now += 2
    assert isinstance(await world.commit(proposed), Forward)


async def test_checks_come_in_their_order(make: Make) -> None:
    world = make()
    first, second = await world.propose(), await world.propose()
    crossed = {**first, "proposal_id": second["proposal_id"]}
    assert await world.commit(crossed, {"amount": 1, "to": "eve"}) == "unknown_proposal"
    world.now += 301
    assert await world.commit(crossed, {"amount": 1, "to": "eve"}) == "expired"
    tampered = {**crossed, "commit_token": crossed["commit_token"][:-1] + "~"}
    assert await world.commit(tampered, {"amount": 1, "to": "eve"}) == "bad_signature"


async def test_a_replay_with_other_arguments_is_told_of_its_arguments_first(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    await world.commit(proposed)
    assert await world.commit(proposed, {"amount": 1, "to": "eve"}) == "args_hash_mismatch"


async def test_a_rule_that_came_since_the_proposal_still_denies_and_burns_nothing(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    deny = {"id": "no", "action": "deny", "tools": ["transfer_funds"], "when": {"arg": "amount", "gt": 10}}
    world.set_rules([PAY, deny])
    assert await world.commit(proposed) == "policy_denied"
    world.set_rules([PAY])
    assert isinstance(await world.commit(proposed), Forward)


async def test_a_rule_that_came_in_place_of_the_two_phase_one_denies_too(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    world.set_rules([{"id": "no", "action": "deny", "tools": ["transfer_funds"]}])
    assert await world.commit(proposed) == "policy_denied"
    assert await world.propose() == "policy_denied"
    world.set_rules([])
    assert await world.propose() == {"status": "not_required", "tool": "transfer_funds"}
    forward = await world.commit(proposed)
    assert isinstance(forward, Forward)
    assert forward.message.params == {"name": "transfer_funds", "arguments": ARGUMENTS}
    assert await world.commit(proposed) == "nonce_replay"


async def test_a_call_that_only_sounds_like_a_phase_is_the_servers(make: Make) -> None:
    world = make()
    for name, arguments in (("git_commit", {"commit_token": "abc", "proposal_id": "1"}), ("budget_propose", {})):
        forward = await world.inspect(name, arguments)
        assert isinstance(forward, Forward)
        assert forward.message.params == {"name": name, "arguments": arguments}


async def test_a_rule_that_now_wants_a_person_holds_for_proposals_made_before(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    world.set_rules([{**PAY, "approval": "human"}])
    assert await world.commit(proposed) == "approval_required"
    world.set_rules([PAY])
    assert isinstance(await world.commit(proposed), Forward)


async def test_a_threshold_that_was_lowered_holds_for_proposals_made_before(make: Make) -> None:
    world = make({**PAY, "block_threshold": 1})
    proposed = await world.propose(extra={"candidate_outputs": ["moved 100 to bob", "moved 100 to eve"]})
    world.set_rules([{**PAY, "block_threshold": 0.01}])
    assert await world.commit(proposed) == "low_integrity"


async def test_a_proposal_that_policy_denies_is_refused_at_once(make: Make) -> None:
    world = make(PAY, {"id": "no", "action": "deny", "tools": ["transfer_funds"], "when": {"arg": "amount", "gt": 10}})
    assert await world.propose() == "policy_denied"
    assert (await world.propose({"amount": 5, "to": "bob"}))["status"] == "allowed"


async def test_a_direct_call_is_refused_and_told_how_to_go_on(make: Make) -> None:
    world = make()
    verdict = await world.inspect("transfer_funds", ARGUMENTS)
    assert reason(verdict) == "two_phase_required"
    assert "'transfer_funds_propose'" in reply(verdict)["result"]["content"][0]["text"]


async def test_a_call_whose_arguments_no_rule_governs_needs_no_proposal(make: Make) -> None:
    world = make({**PAY, "when": {"arg": "amount", "gt": 1000}})
    assert await world.propose() == {"status": "not_required", "tool": "transfer_funds"}
    assert isinstance(await world.inspect("transfer_funds", ARGUMENTS), Forward)
    assert reason(await world.inspect("transfer_funds", {"amount": 2000})) == "two_phase_required"


async def test_a_proposal_without_signals_is_blocked(make: Make) -> None:
    world = make()
    answer = await world.propose(extra=None)
    assert answer == {
        "status": "blocked",
        "action": "create_draft",
        "reason": "no_signals",
        "draft": {**ARGUMENTS, "tool": "transfer_funds", "arguments": ARGUMENTS},
        "composite_score": None,
        "signals": {},
    }


async def test_an_unstable_proposal_is_blocked_with_the_same_draft_every_time(make: Make) -> None:
    world = make()
    first, second = await world.propose(extra=UNSTABLE), await world.propose(extra=UNSTABLE)
    assert first == second
    assert first["reason"] == "low_integrity"
    assert first["composite_score"] >= 0.45
    assert (await world.store.proposals([State.BLOCKED]))[0].state is State.BLOCKED


async def test_a_prompt_is_held_against_its_baseline(make: Make) -> None:
    from proxy.core.proposals import Baseline
    from proxy.twophase.scoring import prompt_hash

    world = make()
    await world.store.set_baseline(Baseline("", "transfer_funds", prompt_hash("Pay  Bob"), 0.0))
    same = await world.propose(extra={**STABLE, "prompt": "pay bob"})
    drifted = await world.propose(extra={**STABLE, "prompt": "pay eve"})
    assert same["signals"]["prompt_drift"] == 0.0
    assert drifted["signals"]["prompt_drift"] == 1.0
    assert drifted["composite_score"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    "extra",
    [
        "text",
        ["a", "b"],
        {"prompt": 7},
        {"candidate_outputs": "ab"},
        {"candidate_outputs": ["one"]},
        {"candidate_outputs": ["one", "two", "three"]},
        {"candidate_outputs": ["one", 2]},
        {"candidates": ["a", "b"]},
        {"candidate_outputs": ["", ""]},
        {"candidate_outputs": ["moved", " "]},
    ],
)
async def test_evidence_of_another_form_is_refused(make: Make, extra: Any) -> None:
    assert await make().propose(extra=extra) == "bad_proposal"


async def test_a_proposal_that_cannot_be_hashed_exactly_is_refused(make: Make) -> None:
    assert await make().propose({"amount": 2**53 + 1, "to": "bob"}) == "inexact_value"


async def test_a_proposal_too_large_is_refused_before_any_work(make: Make) -> None:
    world = make()
    world.policy.decide = None  # type: ignore[method-assign, assignment]  it would fail if it were asked
    assert await world.propose({"amount": 1, "to": "b" * (1 << 18)}) == "proposal_too_large"
    assert await world.commit({}, {"amount": 1, "to": "b" * (1 << 18)}) == "proposal_too_large"


async def test_a_proposal_is_as_large_as_what_it_unpacks_to(make: Make) -> None:
    world = make()
    given = {"amount": 1, "to": "b" * (1 << 18), "_interlock": STABLE}
    params = {"name": "transfer_funds_propose", "arguments": given}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    packed = gzip.compress(json.dumps(body).encode())
    assert (
        reason(await world.gate.requests.inspect(packed, CONTEXT, [("Content-Encoding", "gzip")]))
        == "proposal_too_large"
    )
    assert await world.store.proposals() == []


async def test_a_long_prompt_is_refused(make: Make) -> None:
    assert await make().propose(extra={"prompt": "x" * (1 << 16) + "y"}) == "proposal_too_large"


async def test_a_proposal_cannot_be_a_task(make: Make) -> None:
    verdict = await make().inspect("transfer_funds_propose", ARGUMENTS, task={"ttl": 1})
    assert reply(verdict)["error"]["data"]["reason"] == "bad_proposal"


async def test_a_tool_with_such_arguments_of_its_own_commits_with_the_token_aside(make: Make) -> None:
    world = make()
    arguments = {"proposal_id": "mine", "commit_token": "too"}
    proposed = await world.propose(arguments)
    ticket = {name: proposed[name] for name in ("proposal_id", "commit_token")}
    forward = await world.inspect("transfer_funds_commit", {**arguments, "_interlock": ticket})
    assert isinstance(forward, Forward)
    assert forward.message.params["arguments"] == arguments


async def test_a_commit_may_repeat_what_the_proposal_was_scored_by(make: Make) -> None:
    world = make()
    forward = await world.commit(await world.propose(), {**ARGUMENTS, "_interlock": {**STABLE, "prompt": "pay"}})
    assert isinstance(forward, Forward)
    assert forward.message.params["arguments"] == ARGUMENTS


async def test_a_rotated_key_verifies_what_it_signed_and_a_dropped_one_does_not(make: Make) -> None:
    world = make()
    old, dropped = await world.propose(), await world.propose()
    world.ring = KeyRing(SigningKey("k2", b"n" * 32), (SigningKey("k1", b"k" * 32, not_after=world.now + 300),))
    assert isinstance(await world.commit(old), Forward)
    world.ring = KeyRing(SigningKey("k2", b"n" * 32))
    assert await world.commit(dropped) == "bad_signature"
    world.ring = RING


async def test_another_proxys_key_signs_nothing_here(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    world.ring = KeyRing(SigningKey("k1", b"x" * 32))
    assert await world.commit(proposed) == "bad_signature"


# --- human approval


HUMAN = {**PAY, "approval": "human"}


async def test_a_proposal_waits_for_a_person_and_is_found_again(make: Make) -> None:
    world = make(HUMAN)
    first, second = await world.propose(), await world.propose()
    assert first["status"] == second["status"] == "pending"
    assert first["proposal_id"] == second["proposal_id"]
    assert "commit_token" not in first
    assert first["expires_at"] == "1970-01-12T14:46:40Z"


async def test_an_approved_proposal_gives_its_token_to_who_proposes_it_again(make: Make) -> None:
    world = make(HUMAN)
    pending = await world.propose()
    await decide(world, pending, State.APPROVED)
    allowed, again = await world.propose(), await world.propose()
    assert allowed["status"] == "allowed"
    assert allowed["proposal_id"] == pending["proposal_id"]
    assert isinstance(await world.commit(allowed), Forward)
    assert await world.commit(again) == "nonce_replay"
    assert (await world.propose())["status"] == "pending"


async def test_a_rejected_proposal_stays_rejected_until_its_time_is_over(make: Make) -> None:
    world = make(HUMAN)
    await decide(world, await world.propose(), State.REJECTED)
    answer = await world.propose()
    assert answer["status"] == "rejected"
    assert answer["reason"] == "because"
    world.now += 3601
    assert (await world.propose())["status"] == "pending"


async def test_a_proposal_approved_and_then_rejected_cannot_be_committed(make: Make) -> None:
    world = make(HUMAN)
    pending = await world.propose()
    await decide(world, pending, State.APPROVED)
    allowed = await world.propose()
    await decide(world, pending, State.REJECTED)
    assert await world.commit(allowed) == "unknown_proposal"


async def test_another_caller_does_not_get_the_token_of_an_approved_proposal(make: Make) -> None:
    world = make(HUMAN)
    await decide(world, await world.propose(), State.APPROVED)
    assert (await world.propose(context=other(principal=Principal("eve"))))["status"] == "pending"


async def test_without_signals_a_person_decides_where_a_person_decides_anyway(make: Make) -> None:
    world = make(HUMAN)
    assert (await world.propose(extra=None))["status"] == "pending"
    assert (await world.propose({"amount": 1, "to": "x"}, extra=UNSTABLE))["status"] == "blocked"


async def test_a_blocked_proposal_waits_where_the_rule_says_review(make: Make) -> None:
    world = make({**PAY, "review": True})
    pending = await world.propose(extra=UNSTABLE)
    assert pending["status"] == "pending"
    await decide(world, pending, State.APPROVED)
    assert isinstance(await world.commit(await world.propose(extra=UNSTABLE)), Forward)


async def decide(world: World, answer: Any, state: State) -> None:
    done = await world.store.decide(
        answer["proposal_id"], state, operator="ann", reason="because", now=world.now, expires_at=world.now + 3600
    )
    assert done is not None


# --- listing


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": {"amount": {}}}, **more}


async def listed(world: World, *tools: dict[str, Any], cursor: str | None = None, more: bool = False) -> list[str]:
    params = {"cursor": cursor} if cursor else {}
    world.next_id += 1
    body = {"jsonrpc": "2.0", "id": world.next_id, "method": "tools/list", "params": params}
    forward = await world.gate.requests.inspect(json.dumps(body).encode(), CONTEXT)
    assert isinstance(forward, Forward)
    result: dict[str, Any] = {"tools": list(tools), **({"nextCursor": "n"} if more else {})}
    value = world.gate.responses.observe(
        forward.in_flight, {"jsonrpc": "2.0", "id": world.next_id, "result": result}, b""
    )
    return [shown["name"] for shown in value["result"]["tools"]]


async def test_a_governed_tool_is_listed_as_its_phases(make: Make) -> None:
    assert await listed(make(), tool("balance"), tool("transfer_funds")) == [
        "balance",
        "transfer_funds_propose",
        "transfer_funds_commit",
    ]


async def test_a_tool_governed_by_its_arguments_is_listed_beside_its_phases(make: Make) -> None:
    world = make({**PAY, "when": {"arg": "amount", "gt": 1000}})
    assert await listed(world, tool("transfer_funds")) == [
        "transfer_funds",
        "transfer_funds_propose",
        "transfer_funds_commit",
    ]


async def test_a_rule_in_shadow_mode_changes_no_list(make: Make) -> None:
    assert await listed(make({**PAY, "mode": "shadow"}), tool("transfer_funds")) == ["transfer_funds"]


async def test_a_tool_that_is_denied_has_no_phases(make: Make) -> None:
    world = make(PAY, {"id": "no", "action": "deny", "tools": ["transfer_funds"]})
    assert await listed(world, tool("transfer_funds")) == []


async def test_names_that_the_server_has_itself_are_its_own_on_every_page(make: Make) -> None:
    world = make({**PAY, "tools": ["transfer_funds"]})
    await listed(world, tool("transfer_funds_propose"), more=True)
    shown = await listed(world, tool("transfer_funds"), cursor="n")
    assert "transfer_funds_propose" not in shown
    assert isinstance(await world.inspect("transfer_funds_propose", {}), Forward)
    propose = next(name for name in shown if name.endswith("_propose"))
    assert propose.startswith("transfer_funds_")
    answer = await world.propose(tool=propose.removesuffix("_propose"))
    assert answer["status"] == "allowed"
    assert isinstance(await world.commit(answer, tool=propose.removesuffix("_propose")), Forward)


async def test_a_tool_that_was_not_listed_is_proposed_under_the_name_that_its_refusal_gives(make: Make) -> None:
    world = make({**PAY, "tools": ["transfer_*"]})
    await listed(world, tool("balance"), more=True)
    told = reply(await world.inspect("transfer_funds", ARGUMENTS))["result"]["content"][0]["text"]
    assert "'transfer_funds_propose'" in told
    proposed = await world.propose()
    assert proposed["status"] == "allowed"
    assert isinstance(await world.commit(proposed), Forward)


async def test_a_destructive_tool_is_two_phase_where_the_policy_says_so(make: Make) -> None:
    world = make({"id": "d", "action": "two_phase", "annotations": {"destructiveHint": True}})
    shown = await listed(
        world,
        tool("drop", annotations={"destructiveHint": True}),
        tool("look", annotations={"readOnlyHint": True}),
        tool("add", annotations={"destructiveHint": False}),
        tool("unsaid"),
    )
    assert shown == ["drop_propose", "drop_commit", "look", "add", "unsaid_propose", "unsaid_commit"]
    assert reason(await world.inspect("drop", {})) == "two_phase_required"
    assert isinstance(await world.inspect("look", {}), Forward)
    assert reason(await world.inspect("never_listed", {})) == "two_phase_required"
    assert (await world.propose(tool="drop"))["status"] == "allowed"


async def test_what_has_no_id_is_neither_proposed_nor_committed(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    given = {**ARGUMENTS, **{name: proposed[name] for name in ("proposal_id", "commit_token")}}
    for tool_name in ("transfer_funds_propose", "transfer_funds_commit"):
        body = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": tool_name, "arguments": given}}
        verdict = await world.gate.requests.inspect(json.dumps(body).encode(), CONTEXT)
        assert isinstance(verdict, Answer)
        assert verdict.replies == ()
        assert world.events[-1].reason == "bad_proposal"
    assert isinstance(await world.commit(proposed), Forward)


async def test_a_proposal_that_waits_holds_nobody_up_once_no_rule_wants_a_person(make: Make) -> None:
    world = make({**PAY, "approval": "human"})
    assert (await world.propose())["status"] == "pending"
    world.set_rules([PAY])
    assert (await world.propose())["status"] == "allowed"


async def test_only_tools_are_two_phase() -> None:
    with pytest.raises(ValueError, match="only tools can be two-phase"):
        PolicyFile.model_validate({"version": 1, "rules": [{**PAY, "methods": ["resources/read"]}]})
