"""Operators decide on proposed rules: whoever may, recorded first, and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.admin_api.rule_review import RuleReview
from proxy.core.approvals import Operator, Role
from proxy.core.model import AuditEvent
from proxy.core.rule_proposals import Room, RuleState
from proxy.errors import AuditUnavailableError, ReviewError
from proxy.store.rule_proposal_store import RuleProposals
from proxy.store.sqlite import SqliteDatabase
from tests.store.test_rule_proposal_store import proposal

ADA, OLGA, VERA = Operator("ada", Role.ADMIN), Operator("olga", Role.APPROVER), Operator("vera", Role.VIEWER)


class World:
    def __init__(self, folder: Path) -> None:
        self.store = RuleProposals(SqliteDatabase(folder / "store.db", in_thread=False))
        self.events: list[AuditEvent] = []
        self.fail: Exception | None = None
        self.review = RuleReview(self.store, self, lambda: 1_763_000_001.0)

    async def record(self, event: AuditEvent) -> None:
        if self.fail is not None:
            raise self.fail
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self.events.append(event)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    await made.store.add(proposal("proposal-1"), Room())
    await made.store.add(proposal("proposal-2"), Room())
    return made


async def test_they_are_listed_and_found_by_a_beginning(world: World) -> None:
    assert [one["proposal_id"] for one in await world.review.list()] == ["proposal-2", "proposal-1"]
    assert (await world.review.show("proposal-1"))["state"] == "waiting"
    for name, code in (("proposal", "ambiguous_id"), ("prop", "not_found"), ("nothing-like-it", "not_found")):
        with pytest.raises(ReviewError) as caught:
            await world.review.show(name)
        assert caught.value.code == code


async def test_a_decision_is_recorded_with_who_and_why(world: World) -> None:
    decided = await world.review.accept("proposal-1", ADA, " fine ")
    assert (decided["state"], decided["operator"], decided["reason"]) == ("accepted", "ada", "fine")
    await world.review.reject("proposal-2", OLGA, "too wide")
    assert [one.kind for one in world.events] == ["rule_accepted", "rule_rejected"]
    assert world.events[1].detail["operator"] == "olga"
    assert world.events[1].detail["why"] == "too wide"
    with pytest.raises(ReviewError, match="accepted already, by ada"):
        await world.review.reject("proposal-1", OLGA, "late")


@pytest.mark.parametrize(("operator", "how"), [(OLGA, "accept"), (VERA, "accept"), (VERA, "reject")])
async def test_whoever_may_not_changes_nothing(world: World, operator: Operator, how: str) -> None:
    with pytest.raises(ReviewError) as caught:
        await getattr(world.review, how)("proposal-1", operator, "because")
    assert caught.value.code == "role_required"
    assert world.events == []


async def test_a_rejection_says_why_and_reasons_are_bounded(world: World) -> None:
    for reason in ("", " ", "x" * 1001):
        with pytest.raises(ReviewError):
            await world.review.reject("proposal-1", OLGA, reason)
    assert (await world.review.show("proposal-1"))["state"] == RuleState.WAITING


async def test_without_a_record_nothing_is_decided(world: World) -> None:
    world.fail = AuditUnavailableError("full")
    with pytest.raises(AuditUnavailableError):
        await world.review.accept("proposal-1", ADA)
    assert (await world.review.show("proposal-1"))["state"] == RuleState.WAITING
