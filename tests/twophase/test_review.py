"""Operators decide on proposals: what is allowed, what is recorded, and in which order."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.core.approvals import ApprovedCall, NextCalls, Operator, Role
from proxy.core.proposals import Commit, State
from proxy.errors import AuditUnavailableError, ReviewError, StoreUnavailableError
from proxy.twophase.review import MAX_REASON, SEARCHED, describe, standing
from tests.support.proposal_fixture import ALICE, BOB, NOW, VERA, ReviewFixture, new_proposal

ID = new_proposal().proposal_id
DECISIONS = {
    State.APPROVED: lambda world: world.review.approve(ID, ALICE, "looks right"),
    State.REJECTED: lambda world: world.review.reject(ID, ALICE, "looks wrong"),
}


@pytest.fixture
def world() -> ReviewFixture:
    world = ReviewFixture()
    world.lay(new_proposal())
    return world


async def code_of(attempt: Any) -> str:
    with pytest.raises(ReviewError) as refused:
        await attempt
    return refused.value.code


@pytest.mark.parametrize("state", DECISIONS)
async def test_a_decision_is_recorded_before_it_is_made(state: State, world: ReviewFixture) -> None:
    told = await DECISIONS[state](world)
    assert world.order == ["proposal", "record", "decide"]
    assert (told["state"], told["operator"], told["operator_at"]) == (state, "alice", NOW)
    (event,) = world.events
    assert event.kind == state
    assert (event.call_id, event.agent, event.arguments) == ("call-1", "bot", {"amount": 100, "note": "***"})
    assert event.detail == {
        "proposal_id": ID,
        "decision": state,
        "operator": "alice",
        "reason": told["operator_reason"],
        "tool": "transfer_funds",
        "server": "bank.example.com",
        "score": 0.2,
    }


@pytest.mark.parametrize("state", DECISIONS)
async def test_what_cannot_be_recorded_is_not_decided(state: State, world: ReviewFixture) -> None:
    world.fail["record"] = AuditUnavailableError("disk full")
    with pytest.raises(AuditUnavailableError):
        await DECISIONS[state](world)
    assert world.kept[ID].state is State.PENDING
    assert "decide" not in world.order


@pytest.mark.parametrize("state", DECISIONS)
@pytest.mark.parametrize("failure", [StoreUnavailableError("down"), asyncio.CancelledError()])
async def test_a_store_that_breaks_off_leaves_a_record_that_nobody_knows(
    state: State, failure: BaseException, world: ReviewFixture
) -> None:
    world.fail["decide"] = failure
    with pytest.raises(type(failure)):
        await DECISIONS[state](world)
    assert [(event.kind, event.outcome) for event in world.events] == [(state, None), ("review_failed", "unknown")]
    assert world.events[1].detail == world.events[0].detail


async def test_of_two_operators_at_once_one_decides_and_the_other_hears_who_did(world: ReviewFixture) -> None:
    original = world.record

    async def raced(event: Any) -> None:
        await original(event)
        await world.decide(ID, State.REJECTED, operator="bob", reason="no", now=NOW, expires_at=NOW + 600)

    world.record = raced  # type: ignore[method-assign]
    with pytest.raises(ReviewError, match="is rejected by bob already; it cannot be approved") as refused:
        await world.review.approve(ID, ALICE)
    assert refused.value.code == "not_pending"
    assert [(event.kind, event.outcome) for event in world.events] == [
        (State.APPROVED, None),
        ("review_failed", "refused"),
    ]
    assert world.kept[ID].state is State.REJECTED


async def test_an_approval_gives_the_agent_a_tokens_time_at_least(world: ReviewFixture) -> None:
    world.lay(new_proposal("soon-over", expires_at=NOW + 1, token_seconds=300))
    assert (await world.review.approve("soon-over", ALICE))["expires_at"] == NOW + 300
    assert (await world.review.approve(ID, ALICE))["expires_at"] == NOW + 600


async def test_a_rejection_gives_no_more_time(world: ReviewFixture) -> None:
    assert (await world.review.reject(ID, ALICE, "no"))["expires_at"] == NOW + 600


async def test_an_approval_can_be_taken_back_until_it_is_carried_out(world: ReviewFixture) -> None:
    await world.review.approve(ID, ALICE)
    assert (await world.review.reject(ID, BOB, "on second thoughts"))["state"] == State.REJECTED
    assert [event.kind for event in world.events] == [State.APPROVED, State.REJECTED]


@pytest.mark.parametrize("reason", ["", "  \n"])
async def test_a_rejection_needs_a_reason(reason: str, world: ReviewFixture) -> None:
    assert await code_of(world.review.reject(ID, ALICE, reason)) == "reason_required"
    assert world.order == []
    assert (await world.review.approve(ID, ALICE, reason))["operator_reason"] == ""


@pytest.mark.parametrize("state", DECISIONS)
async def test_a_reason_has_its_bounds(state: State, world: ReviewFixture) -> None:
    decide = world.review.approve if state is State.APPROVED else world.review.reject
    assert await code_of(decide(ID, ALICE, "x" * (MAX_REASON + 1))) == "reason_too_long"
    assert world.events == []


@pytest.mark.parametrize("state", DECISIONS)
async def test_what_has_expired_is_not_decided_though_the_store_has_it_pending(
    state: State, world: ReviewFixture
) -> None:
    world.now = NOW + 605
    with pytest.raises(ReviewError, match="expired 5 s ago; the agent may propose again") as refused:
        await DECISIONS[state](world)
    assert (refused.value.code, world.events) == ("expired", [])


@pytest.mark.parametrize(
    ("wanted", "state"),
    [
        *((wanted, state) for wanted in DECISIONS for state in (State.REJECTED, State.BLOCKED, State.COMMITTED)),
        *((wanted, State.PROPOSED) for wanted in DECISIONS),
        (State.APPROVED, State.APPROVED),
    ],
)
async def test_only_what_waits_is_decided(wanted: State, state: State, world: ReviewFixture) -> None:
    world.lay(new_proposal(state=state))
    assert await code_of(DECISIONS[wanted](world)) == "not_pending"
    assert world.events == []
    assert world.kept[ID].state is state


async def test_a_proposal_is_found_by_a_beginning_that_no_other_has(world: ReviewFixture) -> None:
    world.lay(new_proposal("01890000-1111-7000-8000-00000000000b"))
    assert (await world.review.show(ID[:13]))["proposal_id"] == ID
    with pytest.raises(ReviewError, match=f"{ID}.*give the whole id") as refused:
        await world.review.show(ID[:9])
    assert refused.value.code == "ambiguous_id"


async def test_a_guess_decides_nothing(world: ReviewFixture) -> None:
    world.lay(new_proposal("01890000-1111-7000-8000-00000000000b"))
    for beginning in ("", "0", ID[:7], ID[:8]):
        await code_of(world.review.reject(beginning, ALICE, "no"))
        await code_of(world.review.approve(beginning, ALICE))
    assert world.events == []


async def test_among_too_many_a_beginning_is_not_enough(world: ReviewFixture) -> None:
    world.lay(*(new_proposal(f"other-{number:08}") for number in range(SEARCHED)))
    world.kept = {ID: world.kept.pop(ID), **world.kept}
    assert await code_of(world.review.approve(ID[:20], ALICE)) == "ambiguous_id"
    assert (await world.review.approve(ID, ALICE))["state"] == State.APPROVED


async def test_what_is_not_there_is_told_with_what_is_near(world: ReviewFixture) -> None:
    with pytest.raises(ReviewError, match=f"there is no proposal '{ID[:-1]}b'; close to it: {ID}"):
        await world.review.show(f"{ID[:-1]}b")
    with pytest.raises(ReviewError, match="interlock proposals list"):
        await world.review.show("something-else")
    with pytest.raises(ReviewError, match="8 characters or more"):
        await world.review.show(ID[:3])


@pytest.mark.parametrize("odd", ["", "\0", "a b", "é", "\ud800", "../x", "x" * 129])
async def test_an_id_of_another_form_never_reaches_the_store(odd: str, world: ReviewFixture) -> None:
    assert await code_of(world.review.show(odd)) == "not_found"
    assert world.order == []


async def test_a_list_goes_by_where_proposals_stand_now(world: ReviewFixture) -> None:
    world.lay(
        new_proposal("over-pending", expires_at=NOW - 1),
        new_proposal("over-swept", state=State.EXPIRED, expires_at=NOW - 9),
        new_proposal("over-rejected", state=State.REJECTED, expires_at=NOW - 9),
    )

    async def listed(*states: State) -> set[str]:
        return {told["proposal_id"] for told in await world.review.list(states)}

    assert await listed(State.PENDING) == {ID}
    assert await listed(State.EXPIRED) == {"over-pending", "over-swept"}
    assert await listed(State.REJECTED) == {"over-rejected"}
    assert len(await listed()) == 4
    assert len(await world.review.list(limit=2)) == 2


async def test_a_proposal_is_told_with_its_time_left_and_without_its_nonce(world: ReviewFixture) -> None:
    told = await world.review.show(ID)
    assert (told["state"], told["seconds_left"]) == ("pending", 600)
    assert "nonce" not in json.dumps(told)
    over = describe(new_proposal(), NOW + 601)
    assert (over["state"], over["seconds_left"]) == ("expired", None)


def test_an_end_stays_an_end_when_its_time_is_over() -> None:
    for state in (State.REJECTED, State.BLOCKED, State.COMMITTED, State.EXPIRED):
        assert standing(new_proposal(state=state), NOW + 1e9) is state
    for state in (State.PENDING, State.PROPOSED, State.APPROVED):
        assert standing(new_proposal(state=state), NOW + 1e9) is State.EXPIRED


@pytest.mark.parametrize("step", ["proposal", "proposals"])
async def test_a_store_that_is_down_is_told(step: str, world: ReviewFixture) -> None:
    world.fail[step] = StoreUnavailableError("down")
    with pytest.raises(StoreUnavailableError):
        await world.review.list() if step == "proposals" else await world.review.approve(ID, ALICE)
    assert world.events == []


async def test_a_proposal_that_was_carried_out_is_shown_with_its_commit(world: ReviewFixture) -> None:
    world.lay(new_proposal(state=State.COMMITTED))
    nonce = world.kept[ID].nonce
    world.commits[nonce] = Commit(proposal_id=ID, nonce=nonce, attempt_id="call-2", at=5.0, expires_at=9.0)
    shown = await world.review.show(ID)
    assert shown["commit"] == {"call_id": "call-2", "at": 5.0, "outcome": None, "ended_at": None, "attempts": 1}
    assert nonce not in repr(shown)


async def test_as_many_people_approve_as_the_rule_wants_and_nobody_twice(world: ReviewFixture) -> None:
    world.lay(new_proposal(people=2))
    first = await world.review.approve(ID, ALICE, "fine")
    assert (first["state"], first["approvals"], first["people"]) == ("pending", 1, 2)
    assert await code_of(world.review.approve(ID, ALICE, "again")) == "already_approved"
    assert [event.kind for event in world.events] == ["approved"]
    assert (await world.review.approve(ID, BOB))["state"] == "approved"
    assert [one["operator"] for one in (await world.review.show(ID))["approved_by"]] == ["alice", "bob"]
    assert world.events[-1].detail["people"] == 2


async def test_any_rejection_ends_what_others_approved(world: ReviewFixture) -> None:
    world.lay(new_proposal(people=2))
    await world.review.approve(ID, ALICE)
    assert (await world.review.reject(ID, BOB, "no"))["state"] == "rejected"
    assert await code_of(world.review.approve(ID, Operator("carol"))) == "not_pending"


async def test_a_viewer_decides_nothing(world: ReviewFixture) -> None:
    assert await code_of(world.review.approve(ID, VERA)) == "role_required"
    assert await code_of(world.review.reject(ID, VERA, "no")) == "role_required"
    assert await code_of(world.review.revoke_standing("x", VERA)) == "role_required"
    assert world.order == []


async def test_nobody_approves_for_an_agent_they_run_where_the_rule_says_so(world: ReviewFixture) -> None:
    runs = Operator("alice", Role.ADMIN, frozenset({"bot"}))
    world.lay(new_proposal(own="refuse"))
    assert await code_of(world.review.approve(ID, runs)) == "own_proposal"
    assert world.events == []
    assert (await world.review.approve(ID, BOB))["state"] == "approved"
    assert (await world.review.reject(ID, runs, "not mine after all"))["state"] == "rejected"
    world.lay(new_proposal())
    assert (await world.review.approve(ID, runs))["state"] == "approved"


PARTS = {"amount": "number:aa", "to": "string:bb"}


async def test_a_standing_approval_is_recorded_with_its_bounds(world: ReviewFixture) -> None:
    world.lay(new_proposal(parts=PARTS))
    await world.review.approve(ID, ALICE, "payday", NextCalls(5, 60.0, ("amount",)))
    (standing,) = world.stands.values()
    assert (standing.granted, standing.remaining, standing.expires_at) == (5, 5, NOW + 60)
    assert (standing.rule, standing.principal, standing.tool) == ("payments", "bot", "transfer_funds")
    assert world.events[0].detail["standing"]["standing_id"] == standing.standing_id
    assert world.order.index("record") < world.order.index("stand")
    (shown,) = await world.review.list_standing()
    assert "like_key" not in shown
    assert (await world.review.revoke_standing(standing.standing_id, BOB, "done"))["state"] == "revoked"
    assert world.events[-1].kind == "standing_revoked"


@pytest.mark.parametrize(
    ("fields", "asked", "code"),
    [
        ({"people": 2}, NextCalls(1, 60), "people_required"),
        ({}, NextCalls(0, 60), "bad_next"),
        ({}, NextCalls(1001, 60), "bad_next"),
        ({}, NextCalls(1, float("nan")), "bad_next"),
        ({}, NextCalls(1, 1e9), "bad_next"),
        ({}, NextCalls(1, 60, ("iban",)), "bad_next"),
        ({"parts": {}}, NextCalls(1, 60), "bad_next"),
    ],
)
async def test_a_standing_approval_that_may_not_be_given_decides_nothing(
    fields: dict[str, Any], asked: NextCalls, code: str, world: ReviewFixture
) -> None:
    world.lay(new_proposal(**{"parts": PARTS, **fields}))
    assert await code_of(world.review.approve(ID, ALICE, "", asked)) == code
    assert (world.events, world.stands) == ([], {})
    assert world.kept[ID].state is State.PENDING


async def test_a_standing_approval_that_cannot_be_stored_is_told_of(world: ReviewFixture) -> None:
    world.lay(new_proposal(parts=PARTS))
    world.fail["stand"] = StoreUnavailableError("down")
    with pytest.raises(StoreUnavailableError):
        await world.review.approve(ID, ALICE, "", NextCalls(5, 60.0))
    assert [event.kind for event in world.events] == ["approved", "review_failed"]


async def test_the_last_approved_call_of_the_tool_is_shown_to_compare_with(world: ReviewFixture) -> None:
    world.last = ApprovedCall("bank.example.com", "transfer_funds", "other", "bot", {"amount": 1}, "bob", NOW - 5)
    assert (await world.review.show(ID))["last_approved"]["arguments"] == {"amount": 1}
    world.last = ApprovedCall("bank.example.com", "transfer_funds", ID, "bot", {"amount": 1}, "bob", NOW - 5)
    assert (await world.review.show(ID))["last_approved"] is None
