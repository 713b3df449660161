"""The audit page: verify, export, evidence."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise

import pytest

from proxy.console import audit_page
from proxy.console.audit_page import AuditPage
from proxy.core.event import link
from proxy.errors import AuditUnavailableError
from tests.console.xss_corpus import CORPUS
from tests.support.audit_fixture import TRAIL, World, event
from tests.support.console_fixture import Desk


@pytest.fixture
def world(desk: Desk) -> World:
    made = World(desk.console.trail.state_dir, None)
    made.record(*TRAIL)
    made.ship()
    made.record(event(20, tool="=cmd()"))
    return made


def page_of(desk: Desk) -> AuditPage:
    found = [route.endpoint for route in desk.app.routes if getattr(route, "path", "") == "/audit"]
    page = getattr(found[0], "__self__", None)
    assert isinstance(page, AuditPage)
    return page


async def test_the_page_has_checkpoints_and_verifies(desk: Desk, world: World) -> None:
    await desk.log_in()
    before = (await desk.http.get("/audit")).text
    assert "Nobody has verified" in before
    assert 'id="checkpoints"' in before
    assert (await desk.post("/audit/verify")).headers["location"] == "/audit"
    await page_of(desk).verification.wait()
    after = (await desk.http.get("/audit")).text
    assert "all as it was written" in after
    assert "begun by ann" in after


async def test_jsonl_is_what_verify_reads(desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_page, "EXPORT_ROWS", 2)
    await desk.log_in()
    answer = await desk.post("/audit/export", form="jsonl", since="")
    assert "attachment" in answer.headers["content-disposition"]
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert all(link(one["chain"], two["seq"], two["body"]) == two["chain"] for one, two in pairwise(rows))
    recorded = desk.sink.events[-1]
    assert (recorded.kind, recorded.detail["operator"]) == ("audit_exported", "ann")


async def test_csv_is_safe_in_a_spreadsheet(desk: Desk, world: World) -> None:
    await desk.log_in()
    answer = await desk.post("/audit/export", form="csv", since="")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 7
    assert rows[-1]["tool"] == "'=cmd()"
    assert len(list(csv.DictReader(io.StringIO((await desk.post("/audit/export", form="csv", since="1h")).text)))) == 0


@pytest.mark.parametrize("fields", [{"form": "exe"}, {"form": "csv", "since": "1y"}, {}])
async def test_another_export_is_refused(fields: dict[str, str], desk: Desk) -> None:
    await desk.log_in()
    assert (await desk.post("/audit/export", **fields)).status_code == 400


async def test_nothing_is_exported_without_a_record_of_it(desk: Desk, world: World) -> None:
    await desk.log_in()
    desk.sink.fail = AuditUnavailableError("the disk is full")
    assert (await desk.post("/audit/export", form="jsonl", since="")).status_code == 503


async def test_the_evidence_of_a_call_can_be_checked(desk: Desk, world: World) -> None:
    world.record(event(21, "completed", call_id="call-0020"))
    await desk.log_in()
    for call, covered in (("call-0001", True), ("call-0020", False)):
        answer = await desk.http.get(f"/audit/evidence?call={call}")
        assert answer.headers["content-disposition"] == f'attachment; filename="evidence-{call}.json"'
        made = answer.json()
        assert len(made["events"]) == 2
        for one in made["events"]:
            assert one["link_follows"] is True
            assert link(one["before"], one["seq"], one["body"]) == one["chain"]
        assert bool(made["checkpoints"]) == covered


@pytest.mark.parametrize("wrong", ["", "none", "../x", "a b", "x" * 300])
async def test_a_call_that_there_is_not_has_no_evidence(wrong: str, desk: Desk, world: World) -> None:
    await desk.log_in()
    assert (await desk.http.get("/audit/evidence", params={"call": wrong})).status_code == 404


async def test_what_was_recorded_is_text_alone(desk: Desk, world: World) -> None:
    world.record(*(event(100 + number, tool=text) for number, text in enumerate(CORPUS)))
    await desk.log_in()
    answer = await desk.post("/audit/export", form="csv", since="")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not {"\x1b", "\x00", "\u202e"} & set(answer.text)
