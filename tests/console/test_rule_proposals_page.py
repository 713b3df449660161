"""Proposed rules in the console: what is shown, who decides, and that nothing is put in force."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import pytest

from proxy.core.approvals import Role
from proxy.core.rule_proposals import Room, RuleProposal
from proxy.store.open_store import open_database
from proxy.store.rule_proposal_store import RuleProposals
from tests.console.test_learning import editor
from tests.console.xss_corpus import CORPUS
from tests.support.audit_fixture import World, event
from tests.support.console_fixture import POLICY, Desk

TEXT = """\
version: 1
rules:
- id: less
  action: deny
  tools: [send]
  tests:
  - call: {tool: send}
    expect: deny
  - call: {tool: read}
    expect: no_match
"""
DENIES = POLICY.replace("default: allow", "default: deny")
WIDER = TEXT.replace("deny", "allow").replace("less", "more")


async def propose(desk: Desk, name: str = "proposal-1", **changes: Any) -> None:
    plain: dict[str, Any] = {"agent": "bot", "rule_id": "less", "text": TEXT, "why": "I send too much", "digest": name}
    plain |= {"call_id": "c1", "policy_version": "v", "created_at": time.time(), **changes}
    database = open_database(None, desk.console.trail.state_dir)
    await RuleProposals(database).add(RuleProposal(proposal_id=name, **plain), Room())
    await database.close()


async def log_in(desk: Desk, role: Role = Role.ADMIN) -> None:
    desk.tokens.add("ann", role)
    await desk.log_in("ann")


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", text)))


async def test_it_is_listed_while_it_waits_and_shown_with_its_effect(desk: Desk) -> None:
    World(desk.console.trail.state_dir, None).record(event(1, time=time.time(), tool="send"))
    await propose(desk)
    await log_in(desk)
    assert "/policy/proposals/proposal-1" in (await desk.http.get("/policy")).text
    said = plain((await desk.http.get("/policy/proposals/proposal-1")).text)
    assert "Proven: nothing that is stopped now would pass" in said
    assert "1 of 1 calls would be decided otherwise" in said
    assert "2 tests pass" in said
    assert "I send too much" in said


async def test_a_rule_that_opens_something_is_shown_with_a_call(desk: Desk) -> None:
    desk.console.policy_path.write_text(DENIES)
    await propose(desk, text=WIDER, rule_id="more")
    await log_in(desk)
    said = plain((await desk.http.get("/policy/proposals/proposal-1")).text)
    assert "yes This call, for example: deny (default_deny) now, allow (more) with the rule" in said


async def test_accepting_opens_it_in_the_editor_and_saves_nothing(desk: Desk) -> None:
    await propose(desk)
    await log_in(desk)
    answer = await desk.post("/policy/proposals/proposal-1/accept", reason="fine")
    assert answer.headers["location"] == "/policy?proposal=proposal-1"
    text = (await desk.http.get("/policy?proposal=proposal-1")).text
    assert editor(text).index("id: less") < editor(text).index("id: no-danger")
    assert "It is not saved" in text
    assert "1 of 0" not in plain(text)
    assert desk.console.policy_path.read_text() == POLICY
    assert desk.sink.kinds()[-1] == "rule_accepted"
    assert 'id="proposed"' not in text


async def test_rejecting_needs_a_reason(desk: Desk) -> None:
    await propose(desk)
    await log_in(desk, Role.APPROVER)
    assert (await desk.post("/policy/proposals/proposal-1/reject", reason="")).status_code == 400
    assert (await desk.post("/policy/proposals/proposal-1/reject", reason="too wide")).status_code == 303
    said = plain((await desk.http.get("/policy/proposals/proposal-1")).text)
    assert "rejected" in said
    assert "too wide" in said
    assert (await desk.post("/policy/proposals/proposal-1/reject", reason="again")).status_code == 409


@pytest.mark.parametrize(
    ("role", "verb", "status"),
    [(Role.VIEWER, "reject", 403), (Role.VIEWER, "accept", 403), (Role.APPROVER, "accept", 403)],
)
async def test_whoever_may_not_decides_nothing(desk: Desk, role: Role, verb: str, status: int) -> None:
    await propose(desk)
    await log_in(desk, role)
    assert (await desk.post(f"/policy/proposals/proposal-1/{verb}", reason="x")).status_code == status
    page = (await desk.http.get("/policy/proposals/proposal-1")).text
    assert f'id="{verb}"' not in page


async def test_a_rule_that_does_not_fit_the_policy_any_more_says_why(desk: Desk) -> None:
    await propose(desk, text=TEXT.replace("less", "no-danger"))
    await log_in(desk)
    said = plain((await desk.http.get("/policy/proposals/proposal-1")).text)
    assert "It cannot be said: the rule does not load beside the policy" in said
    assert "no-danger" in said


async def test_one_that_is_not_there_is_not_found(desk: Desk) -> None:
    await log_in(desk)
    for path in ("/policy/proposals/nothing-here", "/policy?proposal=nothing-here"):
        assert (await desk.http.get(path)).status_code == 404


async def test_what_an_agent_writes_stays_text(desk: Desk) -> None:
    await log_in(desk)
    for number, one in enumerate(CORPUS[:20]):
        await propose(
            desk,
            f"proposal-{number:02}",
            agent=f"{one} {number}",
            why=f"{one}\u202e\x1b",
            rule_id=one[:80],
            text=f"# {one}\n{TEXT}",
        )
        page = (await desk.http.get(f"/policy/proposals/proposal-{number:02}")).text
        assert "\u202e" not in page
        assert "\x1b" not in page
        assert "<" not in one or one not in page
    listed = (await desk.http.get("/policy")).text
    assert not any(one in listed for one in CORPUS if "<" in one)
