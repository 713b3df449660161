"""Several people, and approvals that stand for the next calls, through the gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.core.approvals import NextCalls, Operator
from proxy.core.model import Forward
from proxy.twophase.review import ProposalReview
from tests.support.two_phase_fixture import ARGUMENTS, CONTEXT, PAY, RING, UNSTABLE, World, replace_agent

HUMAN = {**PAY, "approval": "human"}
ALICE, BOB = Operator("alice"), Operator("bob")


@pytest.fixture(params=["sqlite", "postgres"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    url = request.getfixturevalue("database_url") if request.param == "postgres" else None
    world = World(tmp_path, [HUMAN], database_url=url)
    yield world
    await world.close()


def review(world: World) -> ProposalReview:
    return ProposalReview(world.store, world, lambda: world.now)


async def approved(world: World, arguments: Any = None, next_calls: NextCalls | None = None) -> Any:
    """Propose, approve, propose again: return the answer with the token."""
    proposed = await world.propose(arguments)
    assert proposed["status"] == "pending"
    await review(world).approve(proposed["proposal_id"], ALICE, "payday", next_calls)
    return await world.propose(arguments)


@pytest.mark.parametrize("rule", [{**HUMAN, "approvals": 2}, {**PAY, "approval": {"people": 2}}])
async def test_a_call_runs_once_two_people_have_approved(world: World, rule: dict[str, Any]) -> None:
    world.set_rules([rule])
    proposed = await world.propose()
    await review(world).approve(proposed["proposal_id"], ALICE)
    assert (await world.propose())["status"] == "pending"
    await review(world).approve(proposed["proposal_id"], BOB)
    again = await world.propose()
    assert again["status"] == "allowed"
    assert isinstance(await world.commit(again), Forward)


async def test_what_one_approved_is_refused_where_two_must_by_now(world: World) -> None:
    token = await approved(world)
    world.set_rules([{**HUMAN, "approvals": 2}])
    assert await world.commit(token) == "approval_required"


async def test_as_many_like_it_pass_as_were_approved_and_each_says_by_what(world: World) -> None:
    await approved(world, next_calls=NextCalls(3, 600.0, ("amount",)))
    (standing,) = await world.store.standing.newest()
    answers = await asyncio.gather(*(world.propose({**ARGUMENTS, "amount": n}) for n in range(1, 9)))
    passed = [answer for answer in answers if answer["status"] == "allowed"]
    assert (len(passed), {answer["status"] for answer in answers}) == (3, {"allowed", "pending"})
    found = await world.store.proposal(passed[0]["proposal_id"])
    assert found is not None
    assert (found.standing_id, found.operator) == (standing.standing_id, "alice")
    amount = found.arguments["amount"]
    assert isinstance(await world.commit(passed[0], {**ARGUMENTS, "amount": amount}), Forward)
    told = [event.detail.get("standing_id") for event in world.events if event.kind in ("proposed", "committed")]
    assert told.count(standing.standing_id) == 4


@pytest.mark.parametrize(
    "change", [{"to": "eve"}, {"amount": "100"}, {"extra": 1}, {"amount": None}], ids=["value", "type", "more", "null"]
)
async def test_another_call_is_not_like_it(world: World, change: dict[str, Any]) -> None:
    await approved(world, next_calls=NextCalls(3, 600.0, ("amount",)))
    assert (await world.propose({**ARGUMENTS, **change}))["status"] == "pending"
    (standing,) = await world.store.standing.newest()
    assert standing.remaining == 3


async def test_by_default_all_arguments_must_be_equal(world: World) -> None:
    await world.commit(await approved(world, next_calls=NextCalls(1, 600.0)))
    assert (await world.propose({**ARGUMENTS, "amount": 101}))["status"] == "pending"
    again = await world.propose()
    assert again["status"] == "allowed"
    await world.commit(again)
    assert (await world.propose())["status"] == "pending"


async def test_it_is_the_agents_own(world: World) -> None:
    await approved(world, next_calls=NextCalls(3, 600.0, ("amount",)))
    other = await world.propose({**ARGUMENTS, "amount": 1}, context=replace_agent(CONTEXT, "eve"))
    assert other["status"] == "pending"


async def test_it_ends_with_its_time_a_revocation_another_rule_and_another_key(world: World) -> None:
    await approved(world, next_calls=NextCalls(9, 600.0, ("amount",)))
    (standing,) = await world.store.standing.newest()
    world.set_rules([{**HUMAN, "id": "other"}])
    assert (await world.propose({**ARGUMENTS, "amount": 1}))["status"] == "pending"
    world.set_rules([{**HUMAN, "approvals": 2}])
    assert (await world.propose({**ARGUMENTS, "amount": 2}))["status"] == "pending"
    world.set_rules([HUMAN])
    world.ring = type(RING)(type(RING.current)("k2", b"j" * 32), (RING.current,))
    assert (await world.propose({**ARGUMENTS, "amount": 3}))["status"] == "pending"
    world.ring = RING
    assert (await world.propose({**ARGUMENTS, "amount": 4}))["status"] == "allowed"
    await review(world).revoke_standing(standing.standing_id, BOB, "enough")
    assert (await world.propose({**ARGUMENTS, "amount": 5}))["status"] == "pending"
    await approved(world, {**ARGUMENTS, "amount": 6}, NextCalls(9, 600.0, ("amount",)))
    world.now += 600
    assert (await world.propose({**ARGUMENTS, "amount": 7}))["status"] == "pending"


async def test_what_its_score_blocks_no_standing_approval_lets_through(world: World) -> None:
    await approved(world, next_calls=NextCalls(9, 600.0, ("amount",)))
    assert (await world.propose({**ARGUMENTS, "amount": 8}, extra=UNSTABLE))["status"] == "blocked"
