"""What a store of rule proposals promises, on SQLite and on Postgres alike."""

from __future__ import annotations

import dataclasses
from typing import Any

from proxy.core.rule_proposals import Room, RuleProposal, RuleState
from proxy.store.proposal_store import Proposals
from proxy.store.rule_proposal_store import HOUR, KEPT_SECONDS, RuleProposals

NOW = 1_763_000_000.25
ROOM = Room(of_agent=3, of_all=4, an_hour=5)


def proposal(name: str = "p1", **changes: Any) -> RuleProposal:
    plain = RuleProposal(
        proposal_id=name,
        agent="odd \0 agent",
        rule_id="let-me",
        text="version: 1\n",
        why="because \0 \ud800",
        digest=f"digest of {name}",
        call_id="call",
        policy_version="v",
        created_at=NOW,
    )
    return dataclasses.replace(plain, **changes)


async def test_what_is_added_is_found_as_it_was(store: Proposals) -> None:
    rules = RuleProposals(store.database)
    assert await rules.add(proposal(), ROOM) == proposal()
    assert await rules.find("p1") == proposal()
    assert await rules.find("\0") is None
    await rules.add(proposal("p2", created_at=NOW + 1), ROOM)
    assert [one.proposal_id for one in await rules.newest((), 10)] == ["p2", "p1"]
    assert [one.proposal_id for one in await rules.newest((RuleState.WAITING,), 1)] == ["p2"]
    assert await rules.newest((RuleState.ACCEPTED, RuleState.REJECTED), 10) == []


async def test_the_same_text_is_proposed_once_while_it_waits(store: Proposals) -> None:
    rules = RuleProposals(store.database)
    await rules.add(proposal(), ROOM)
    again = await rules.add(proposal("p2", digest="digest of p1"), ROOM)
    assert again is not None
    assert again.proposal_id == "p1"
    other = await rules.add(proposal("p3", digest="digest of p1", agent="another"), ROOM)
    assert other is not None
    assert other.proposal_id == "p3"


async def test_an_agent_has_so_many_waiting_and_so_many_an_hour(store: Proposals) -> None:
    rules = RuleProposals(store.database)
    for number in range(ROOM.of_agent):
        assert await rules.add(proposal(f"p{number}"), ROOM)
    assert await rules.add(proposal("more"), ROOM) is None
    for number in range(ROOM.of_agent):
        await rules.decide(f"p{number}", RuleState.REJECTED, "olga", "", NOW)
    for number in range(3, ROOM.an_hour):
        assert await rules.add(proposal(f"p{number}"), ROOM)
    assert await rules.add(proposal("more"), ROOM) is None
    assert await rules.add(proposal("later", created_at=NOW + HOUR), ROOM)


async def test_all_agents_together_have_so_many_waiting(store: Proposals) -> None:
    rules = RuleProposals(store.database)
    for number in range(ROOM.of_all):
        assert await rules.add(proposal(f"p{number}", agent=f"agent {number}"), ROOM)
    assert await rules.add(proposal("more", agent="new"), ROOM) is None


async def test_one_is_decided_once(store: Proposals) -> None:
    rules = RuleProposals(store.database)
    await rules.add(proposal(), ROOM)
    decided = await rules.decide("p1", RuleState.ACCEPTED, "olga", "fine", NOW + 5)
    expected = {"state": RuleState.ACCEPTED, "operator": "olga", "reason": "fine", "decided_at": NOW + 5}
    assert decided == proposal(**expected)
    assert await rules.decide("p1", RuleState.REJECTED, "tom", "", NOW + 6) is None
    assert await rules.find("p1") == decided
    assert await rules.decide("none", RuleState.REJECTED, "tom", "", NOW) is None


async def test_what_is_older_than_a_month_goes(store: Proposals) -> None:
    rules = RuleProposals(store.database)
    await rules.add(proposal(), ROOM)
    await rules.add(proposal("p2", created_at=NOW + KEPT_SECONDS + 1), ROOM)
    assert [one.proposal_id for one in await rules.newest((), 10)] == ["p2"]
