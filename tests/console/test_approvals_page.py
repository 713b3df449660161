"""Approvals: whole arguments, who may decide, and what is recorded."""

from __future__ import annotations

import time
from typing import Any

import pytest

from proxy.console.approvals_page import VARY
from proxy.core.approvals import Role
from proxy.core.proposals import Proposal, State
from proxy.errors import AuditUnavailableError
from tests.support.console_fixture import Desk
from tests.support.proposal_fixture import new_proposal

ID = "01890000-0000-7000-8000-00000000000a"
HASHES = {"amount": "number:1", "note": "string:2"}


async def pend(desk: Desk, proposal_id: str = ID, **fields: Any) -> Proposal:
    """Lay a proposal in the store, as the gate does."""
    now = time.time()
    given = {"created_at": now, "expires_at": now + 600, "arguments_hash": proposal_id, "parts": HASHES}
    made: Proposal = await desk.console.review._store.propose(new_proposal(proposal_id, **(given | fields)), now)
    return made


async def state(desk: Desk, proposal_id: str = ID) -> str:
    return str((await desk.console.review.show(proposal_id))["state"])


async def test_what_waits_is_listed_with_the_one_that_runs_out_first(desk: Desk) -> None:
    await pend(desk, expires_at=time.time() + 900)
    await pend(desk, f"{ID[:-1]}b", expires_at=time.time() + 60, arguments={"amount": 7})
    await desk.log_in()
    text = (await desk.http.get("/approvals")).text
    assert text.index(f"{ID[:-1]}b") < text.index(ID)
    waiting = (await desk.http.get("/pending")).json()
    assert (waiting["count"], sorted(waiting["ids"])) == (2, [ID, f"{ID[:-1]}b"])


async def test_a_proposal_is_shown_whole_and_approved_once_it_was_seen(desk: Desk) -> None:
    await pend(desk, arguments={"amount": 100, "note": "y" * 5000})
    await desk.log_in()
    text = (await desk.http.get(f"/approvals/{ID}")).text
    assert "y" * 5000 in text
    assert '<button class="allow" id="approve" disabled>' in text
    for shown in ({}, {"shown": "no"}):
        unseen = await desk.post(f"/approvals/{ID}/approve", **shown)
        assert unseen.status_code == 400
        assert await state(desk) == "pending"
    answer = await desk.post(f"/approvals/{ID}/approve", shown="yes", reason="invoice 7")
    assert answer.headers["location"] == f"/approvals/{ID}"
    assert await state(desk) == "approved"
    approved = next(event for event in desk.sink.events if event.kind == "approved")
    assert (approved.detail["operator"], approved.detail["reason"]) == ("ann", "invoice 7")
    again = await desk.post(f"/approvals/{ID}/approve", shown="yes")
    assert again.status_code == 409


async def test_a_rejection_needs_a_reason(desk: Desk) -> None:
    await pend(desk)
    await desk.log_in()
    assert (await desk.post(f"/approvals/{ID}/reject")).status_code == 400
    assert (await desk.post(f"/approvals/{ID}/reject", reason="wrong account")).status_code == 303
    assert await state(desk) == "rejected"


async def test_a_viewer_sees_and_decides_nothing(desk: Desk) -> None:
    await pend(desk)
    desk.tokens.add("vera", Role.VIEWER)
    await desk.log_in("vera")
    text = (await desk.http.get(f"/approvals/{ID}")).text
    assert "You are a viewer" in text
    assert 'id="decide"' not in text
    for what in ("approve", "reject"):
        assert (await desk.post(f"/approvals/{ID}/{what}", shown="yes", reason="x")).status_code == 403
    assert (await desk.post("/standing/01890000/revoke")).status_code == 403
    assert await state(desk) == "pending"


async def test_two_people_approve_and_none_of_them_twice(desk: Desk) -> None:
    await pend(desk, people=2)
    await desk.log_in("ann")
    await desk.post(f"/approvals/{ID}/approve", shown="yes")
    assert await state(desk) == "pending"
    text = (await desk.http.get(f"/approvals/{ID}")).text
    assert "You have approved it. It waits for somebody else." in text
    assert 'id="next"' not in text
    assert (await desk.post(f"/approvals/{ID}/approve", shown="yes")).status_code == 409
    desk.http.cookies.clear()
    await desk.log_in("bob")
    assert "1 of 2" in (await desk.http.get(f"/approvals/{ID}")).text
    await desk.post(f"/approvals/{ID}/approve", shown="yes")
    assert await state(desk) == "approved"


async def test_nobody_approves_for_an_agent_of_their_own_where_the_rule_says_so(desk: Desk) -> None:
    await pend(desk, own="refuse")
    desk.tokens.add("ann", Role.ADMIN, ["bot"])
    await desk.log_in("ann")
    text = (await desk.http.get(f"/approvals/{ID}")).text
    assert "You run the agent bot" in text
    assert 'id="approve"' not in text
    assert (await desk.post(f"/approvals/{ID}/approve", shown="yes")).status_code == 403
    assert (await desk.post(f"/approvals/{ID}/reject", reason="mine")).status_code == 303


async def test_the_next_calls_like_it_are_approved_and_revoked(desk: Desk) -> None:
    await pend(desk)
    await desk.log_in()
    fields = {"shown": "yes", "next_calls": "3", "next_seconds": "3600", f"{VARY}amount": "yes"}
    assert (await desk.post(f"/approvals/{ID}/approve", **fields)).status_code == 303
    (standing,) = await desk.console.review.list_standing()
    assert (standing["granted"], standing["vary"], standing["state"]) == (3, ["amount"], "live")
    text = (await desk.http.get("/approvals")).text
    assert "Approved in advance" in text
    assert "3 of 3" in text
    await desk.post(f"/standing/{standing['standing_id']}/revoke")
    (standing,) = await desk.console.review.list_standing()
    assert standing["state"] == "revoked"


@pytest.mark.parametrize(
    "fields",
    [
        {"next_calls": "-1"},
        {"next_calls": "many"},
        {"next_calls": "10000"},
        {"next_calls": "0"},
        {"next_calls": "3", "next_seconds": "1"},
        {"next_calls": "3", f"{VARY}unknown": "yes"},
    ],
)
async def test_next_calls_that_make_no_sense_approve_nothing(fields: dict[str, str], desk: Desk) -> None:
    await pend(desk)
    await desk.log_in()
    answer = await desk.post(f"/approvals/{ID}/approve", **({"shown": "yes", "next_seconds": "3600"} | fields))
    assert answer.status_code == 400
    assert await state(desk) == "pending"


async def test_the_last_approved_call_is_beside_the_new_one(desk: Desk) -> None:
    await pend(desk, arguments={"amount": 100, "to": "bob"})
    await desk.log_in()
    assert "No call of this tool was approved before" in (await desk.http.get(f"/approvals/{ID}")).text
    await desk.post(f"/approvals/{ID}/approve", shown="yes")
    other = f"{ID[:-1]}b"
    await pend(desk, other, arguments={"amount": 9000, "to": "bob"})
    text = (await desk.http.get(f"/approvals/{other}")).text
    assert "<del>100</del>" in text
    assert "<ins>9000</ins>" in text
    assert "1 other is the same" in text


async def test_a_decision_that_cannot_be_recorded_is_not_made(desk: Desk) -> None:
    await pend(desk)
    await desk.log_in()
    desk.sink.fail = AuditUnavailableError("disk full")
    assert (await desk.post(f"/approvals/{ID}/approve", shown="yes")).status_code == 503
    assert await state(desk) == "pending"


async def test_an_expired_proposal_cannot_be_approved(desk: Desk) -> None:
    await pend(desk, expires_at=time.time() - 1)
    await desk.log_in()
    assert 'id="decide"' not in (await desk.http.get(f"/approvals/{ID}")).text
    assert (await desk.post(f"/approvals/{ID}/approve", shown="yes")).status_code == 410
    assert await state(desk) == str(State.EXPIRED)


@pytest.mark.parametrize("wrong", ["nothing-like-it", "%2e%2e%2fx", "a%0d%0ab", "<b>"])
async def test_a_proposal_that_is_not_there_is_not_found(wrong: str, desk: Desk) -> None:
    await desk.log_in()
    answer = await desk.http.get(f"/approvals/{wrong}")
    assert answer.status_code == 404
    assert "<b>" not in answer.text
