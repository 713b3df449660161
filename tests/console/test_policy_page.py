"""The policy page: what it shows, tries, saves and refuses."""

from __future__ import annotations

import html
import json
import re
import time
from pathlib import Path

import pytest

from proxy.console import policy_page
from proxy.console.policy_editor import digest_of, find_file, versions
from proxy.core.approvals import Role
from proxy.errors import AuditUnavailableError
from tests.console.xss_corpus import CORPUS
from tests.support.audit_fixture import World, event
from tests.support.console_fixture import POLICY, Desk

CHANGED = POLICY.replace("tools: [danger]", "tools: [read_file]")


@pytest.fixture
def world(desk: Desk) -> World:
    made = World(desk.console.trail.state_dir, None)
    now = time.time()
    made.record(
        event(1, time=now - 5, arguments={"path": "/tmp/x"}),
        event(2, time=now - 4, tool="danger", decision="deny", reason="policy_denied", rule="no-danger"),
        event(3, time=now - 3, tool="danger", decision="deny", reason="policy_denied", rule="no-danger"),
    )
    return made


async def log_in(desk: Desk) -> None:
    desk.tokens.add("ann", Role.ADMIN)
    await desk.log_in("ann")


def verdict(text: str) -> str:
    found = re.search(r'id="verdict".*?</section>', text, re.DOTALL)
    assert found is not None
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", found[0])))


def on_disk(desk: Desk) -> str:
    return desk.console.policy_path.read_text()


async def save(desk: Desk, text: str, base: str | None = None, file: str = "policy.yaml") -> tuple[int, str]:
    base = digest_of(on_disk(desk)) if base is None else base
    answer = await desk.post("/policy/save", file=file, text=text, base=base)
    return answer.status_code, answer.text


async def test_rules_are_listed_with_how_often_they_matched(desk: Desk, world: World) -> None:
    await log_in(desk)
    text = (await desk.http.get("/policy")).text
    rows = re.findall(r'rule=[^"]*">([^<]+)</a>.*?class="number[^"]*">([^<]+)<', text, re.DOTALL)
    assert dict(rows) == {"no-danger": "2", "no-system-files": "0"}


async def test_a_text_is_tried_on_recorded_calls(desk: Desk, world: World) -> None:
    await log_in(desk)
    said = verdict((await desk.post("/policy/check", file="policy.yaml", text=CHANGED)).text)
    # The read is denied, and danger is allowed.
    assert "3 of 3 calls" in said
    assert "With this text" in said
    assert on_disk(desk) == POLICY
    unchanged = verdict((await desk.post("/policy/check", file="policy.yaml", text=POLICY)).text)
    assert "0 of 3 calls" in unchanged
    assert "As it is on disk" in unchanged


async def test_what_is_wrong_is_said_with_its_line(desk: Desk) -> None:
    await log_in(desk)
    said = verdict((await desk.post("/policy/check", file="policy.yaml", text="version: 1\nrulez: []\n")).text)
    assert "policy.yaml:2:1" in said
    assert "did you mean 'rule'" in said


async def test_an_admin_saves_and_it_is_kept_recorded_and_in_force(desk: Desk, world: World) -> None:
    await log_in(desk)
    desk.sink.events.clear()
    status, _ = await save(desk, CHANGED.replace("\n", "\r\n"))
    assert status == 303
    assert on_disk(desk) == CHANGED
    (event_,) = desk.sink.events
    assert event_.kind == "policy_saved"
    assert event_.detail["operator"] == "ann"
    assert (event_.detail["before"], event_.detail["after"]) == (digest_of(POLICY), digest_of(CHANGED))
    (kept,) = versions(desk.console.trail.state_dir, find_file(desk.console.policy_path, ""))
    assert (kept.text, kept.operator) == (POLICY, "ann")
    assert await desk.console.policy.reload()
    page = (await desk.http.get(f"/policy?version={kept.id}")).text
    assert "tools: [danger]" in page
    assert (await desk.http.get("/policy?version=../../x")).status_code == 404


@pytest.mark.parametrize("role", [Role.VIEWER, Role.APPROVER])
async def test_nobody_but_an_admin_saves(role: Role, desk: Desk) -> None:
    desk.tokens.add("vic", role)
    await desk.log_in("vic")
    status, _ = await save(desk, CHANGED)
    assert status == 403
    assert on_disk(desk) == POLICY
    text = (await desk.http.get("/policy")).text
    assert 'id="save"' not in text
    assert (await desk.post("/policy/check", file="policy.yaml", text=CHANGED)).status_code == 200


BAD = {
    "not yaml": "version: [",
    "empty": "",
    "unknown field": "version: 1\nrulez: []\n",
    "unknown detector": "version: 1\nrules: [{id: a, action: redact, tools: [x], detectors: [nope]}]\n",
    "failing test": POLICY + "    tests: [{call: {tool: read_file, arguments: {path: /tmp/x}}, expect: deny}]\n",
    "an alias of itself": "version: 1\nrules: &a [*a]\n",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
async def test_a_policy_that_is_no_good_is_not_saved(text: str, desk: Desk) -> None:
    await log_in(desk)
    desk.sink.events.clear()
    status, said = await save(desk, text)
    assert status == 422
    assert "Not saved" in said
    assert on_disk(desk) == POLICY
    assert desk.sink.events == []


async def test_nothing_is_saved_over_a_change_on_disk(desk: Desk) -> None:
    await log_in(desk)
    assert (await save(desk, CHANGED, base="0" * 64))[0] == 409
    assert on_disk(desk) == POLICY


async def test_nothing_is_saved_that_cannot_be_recorded(desk: Desk) -> None:
    await log_in(desk)
    desk.sink.fail = AuditUnavailableError("the disk is full")
    assert (await save(desk, CHANGED))[0] == 503
    assert on_disk(desk) == POLICY


async def test_a_file_that_cannot_be_replaced_stays_and_that_is_recorded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    await log_in(desk)
    monkeypatch.setattr(policy_page, "replace_text", fail)
    status, said = await save(desk, CHANGED)
    assert status == 503
    assert "No space left" in said
    assert on_disk(desk) == POLICY
    assert desk.sink.kinds()[-1] == "policy_save_failed"


@pytest.mark.parametrize("name", ["", "../policy.yaml", "/etc/passwd", "other.yaml"])
async def test_no_other_file_can_be_named(name: str, desk: Desk) -> None:
    await log_in(desk)
    assert (await save(desk, CHANGED, file=name))[0] in (400, 404)
    if name:
        assert (await desk.http.get("/policy", params={"file": name})).status_code == 404


async def test_a_text_that_is_too_large_is_refused(desk: Desk) -> None:
    await log_in(desk)
    assert (await save(desk, "#" * 70_000))[0] == 413


async def test_the_editor_shows_the_very_text(desk: Desk) -> None:
    await log_in(desk)
    for text in CORPUS:
        hostile = POLICY + f"# {text}\n".replace("\r", "")
        answer = (await desk.post("/policy/check", file="policy.yaml", text=hostile)).text
        shown = answer.partition("<textarea")[2].partition("</textarea>")[0].partition(">\n")[2]
        assert html.unescape(shown) == hostile
        assert "<script>window" not in answer
        assert "<img src=x" not in answer


async def test_characters_that_hide_something_are_pointed_out(desk: Desk) -> None:
    await log_in(desk)
    said = verdict((await desk.post("/policy/check", file="policy.yaml", text=POLICY + "# \u202e\n")).text)
    assert "in line 11." in said


async def test_the_page_tells_of_a_policy_on_disk_that_is_bad(desk: Desk) -> None:
    await log_in(desk)
    Path(desk.console.policy_path).write_text("version: 2\n")
    await desk.console.policy.reload()
    text = (await desk.http.get("/policy")).text
    assert "the one before stays in force" in text
    assert "version: 2" in text


async def test_the_schema_is_served_for_the_editor(desk: Desk) -> None:
    await log_in(desk)
    table = json.loads((await desk.http.get("/policy/schema")).text)
    assert table["PolicyFile"]["rules"]["objects"]
