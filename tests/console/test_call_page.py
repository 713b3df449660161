"""One call: its timeline, why, and a rule from it."""

from __future__ import annotations

import html
import re

import pytest

from tests.support.audit_fixture import World, event
from tests.support.console_fixture import Desk

PATH = {"path": "/srv/../etc/shadow"}


@pytest.fixture
def world(desk: Desk) -> World:
    made = World(desk.console.trail.state_dir, None)
    made.record(
        event(1, arguments=PATH, decision="deny", reason="policy_denied", rule="no-system-files"),
        event(2, arguments={"path": "/tmp/x"}),
    )
    made.ship()
    # The end is in the log still: the page has both.
    made.record(event(3, "completed", call_id="call-0002"))
    return made


async def test_a_call_is_shown_with_every_event_and_its_place_in_the_chain(desk: Desk, world: World) -> None:
    await desk.log_in()
    text = (await desk.http.get("/calls/call-0002")).text
    assert "Decided" in text
    assert "Answered" in text
    assert re.findall(r"event (\d) of", text) == ["2", "3"]


async def test_the_page_says_that_results_are_not_kept(desk: Desk, world: World) -> None:
    await desk.log_in()
    assert "No setting changes that" in (await desk.http.get("/calls/call-0002")).text
    assert "No setting changes that" not in (await desk.http.get("/calls/call-0001")).text


async def test_it_is_explained_by_the_rule_and_the_view_that_decided(desk: Desk, world: World) -> None:
    await desk.log_in()
    text = html.unescape((await desk.http.get("/calls/call-0001")).text)
    assert "no-system-files is the only enforcing rule that matched" in text
    assert "<code>/etc/shadow/</code>" in text
    assert "The policy has changed since" in text


async def test_a_draft_is_offered_and_tried(desk: Desk, world: World) -> None:
    await desk.log_in()
    page = html.unescape((await desk.http.get("/calls/call-0002?action=deny")).text)
    draft = page.partition('aria-label="Draft of a policy file">')[2].partition("</textarea>")[0]
    assert "id: deny-read_file" in draft
    answer = (await desk.post("/calls/call-0002/replay", draft=draft)).text
    assert "Would change 1 of 2 calls" in answer
    assert "2 tests pass" in answer
    bad = (await desk.post("/calls/call-0002/replay", draft="version: 2\n<script>")).text
    assert "draft.yaml" in bad
    assert "<script>" not in bad.replace('<script src="', "").replace('<script type="', "")


async def test_a_draft_that_is_too_large_is_refused(desk: Desk, world: World) -> None:
    await desk.log_in()
    assert (await desk.post("/calls/call-0002/replay", draft="x" * 70_000)).status_code == 413


@pytest.mark.parametrize("wrong", ["no-such-call", "%00", "a%20b", "x" * 300, "..%2f..%2fetc"])
async def test_a_call_that_is_not_there_is_not_found(wrong: str, desk: Desk, world: World) -> None:
    await desk.log_in()
    assert (await desk.http.get(f"/calls/{wrong}")).status_code == 404


async def test_an_event_outside_calls_has_a_page_too(desk: Desk, world: World) -> None:
    world.record(event(9, "operator_refused", call_id=None, method=None, tool=None, agent=None, server=None))
    await desk.log_in()
    text = (await desk.http.get("/calls/event-0009")).text
    assert "Operator refused" in text


async def test_a_proposal_that_was_swept_is_named(desk: Desk, world: World) -> None:
    world.record(event(10, detail={"proposal_id": "01890000-0000-7000-8000-00000000000a"}))
    await desk.log_in()
    assert "/approvals/01890000-0000-7000-8000-00000000000a" in (await desk.http.get("/calls/call-0010")).text
