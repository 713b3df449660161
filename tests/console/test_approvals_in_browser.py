"""People approve and reject in a real browser, and the agent's call runs once or never."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import PHONE, Tab, findings, open_tab, start_browser, visit
from tests.support.console_world import STABLE, World, start_world
from tests.support.timeouts import PATIENCE

expect.set_options(timeout=PATIENCE * 1000)
POLICY = """\
version: 1
default: allow
rules:
  - {id: pay, action: two_phase, approval: human, tools: [transfer_funds]}
  - {id: pay-big, action: two_phase, approval: human, approvals: 2, tools: [transfer_all]}
  - {id: pay-soon, action: two_phase, approval: human, approval_seconds: 5, tools: [transfer_soon]}
  - {id: pay-held, action: two_phase, approval: {how: hold}, tools: [transfer_held]}
  - {id: pay-own, action: two_phase, approval: human, own: refuse, tools: [transfer_own]}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with start_world(tmp_path_factory.mktemp("world"), POLICY) as started:
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as started:
        yield started


@pytest.fixture(scope="module")
def bob(world: World) -> Path:
    """The token file of a second operator, on whose behalf the agent runs."""
    file = world.interlock.state_dir.parent / "bob.token"
    file.write_text(world.interlock.cli("operators", "add", "bob", "--runs", "agent").stdout)
    return file


def propose(world: World, tool: str = "transfer_funds", **arguments: Any) -> dict[str, Any]:
    return world.propose(tool, STABLE, **arguments)


def commit(world: World, tool: str, proposed: dict[str, Any], **arguments: Any) -> Any:
    given = {name: proposed[name] for name in ("proposal_id", "commit_token") if name in proposed}
    return world.call(f"{tool}_commit", {**arguments, **given})


def ran(world: World, tool: str) -> int:
    return sum(one["tool"] == tool for one in world.server.executions())


def open_newest(page: Page, world: World, tool: str) -> None:
    visit(page, f"{world.interlock.console_url}/approvals")
    page.locator("#waiting a.tool", has_text=tool).first.click()
    page.wait_for_url("**/approvals/*")


def test_a_proposal_appears_is_approved_and_its_call_runs_once(browser: Browser, world: World) -> None:
    with open_tab(browser) as tab:
        tab.log_in(world.interlock)
        page = tab.page
        visit(page, f"{world.interlock.console_url}/approvals")
        assert propose(world, amount=100, to="bob")["status"] == "pending"
        expect(page.locator("#waiting")).to_contain_text("amount: 100, to: bob")
        expect(page.locator("#pending-count")).to_have_text("1")
        expect(page).to_have_title("(1) Approvals · Interlock")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/approvals/*")
        page.fill("#reason", "invoice 4711")
        page.click("#approve")
        expect(page.locator("#state")).to_have_text("approved")
        expect(page.locator(".facts")).to_contain_text("invoice 4711")
    proposed = propose(world, amount=100, to="bob")
    commit(world, "transfer_funds", proposed, amount=100, to="bob")
    assert ran(world, "transfer_funds") == 1
    commit(world, "transfer_funds", proposed, amount=100, to="bob")
    assert ran(world, "transfer_funds") == 1


def test_long_arguments_must_be_seen_to_their_end(browser: Browser, world: World) -> None:
    propose(world, amount=1, memo=[f"line {number}" for number in range(400)])
    with open_tab(browser) as tab:
        tab.log_in(world.interlock)
        page = tab.page
        open_newest(page, world, "transfer_funds")
        expect(page.locator("#approve")).to_be_disabled()
        page.locator("#arguments").evaluate("(box) => box.scrollTo(0, box.scrollHeight / 2)")
        expect(page.locator("#approve")).to_be_disabled()
        page.locator("#arguments").evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
        expect(page.locator("#approve")).to_be_enabled()
        page.fill("#reason", "no")
        page.click("#reject")
        expect(page.locator("#state")).to_have_text("rejected")
    answer = world.call("transfer_funds_propose", {"amount": 1, "memo": [f"line {n}" for n in range(400)]})
    assert "rejected" in str(answer)


def test_a_proposal_expires_under_the_eyes_of_the_reader(browser: Browser, world: World) -> None:
    with open_tab(browser) as tab:
        tab.log_in(world.interlock)
        proposed = propose(world, "transfer_soon", amount=1)
        visit(tab.page, f"{world.interlock.console_url}/approvals/{proposed['proposal_id']}")
        expect(tab.page.locator("#state")).to_have_text("expired")
        expect(tab.page.locator("#approve:enabled")).to_have_count(0)


def test_a_held_call_runs_when_a_person_approves_it(browser: Browser, world: World) -> None:
    with open_tab(browser) as tab, ThreadPoolExecutor(1) as agent:
        tab.log_in(world.interlock)
        visit(tab.page, f"{world.interlock.console_url}/approvals")
        held = agent.submit(world.call, "transfer_held", {"amount": 3, "to": "dave"})
        tab.page.locator("#waiting a.tool", has_text="transfer_held").first.click()
        tab.page.wait_for_url("**/approvals/*")
        tab.page.click("#approve")
        expect(tab.page.locator("#state")).to_have_text(re.compile("approved|committed"))
        assert "mcp-interlock/denial" not in held.result(PATIENCE).get("_meta", {})
    assert ran(world, "transfer_held") == 1


def test_two_people_decide_and_one_alone_does_not(browser: Browser, world: World, bob: Path) -> None:
    propose(world, "transfer_all", amount=1_000_000)
    with open_tab(browser) as ann, open_tab(browser) as second:
        ann.log_in(world.interlock)
        open_newest(ann.page, world, "transfer_all")
        ann.page.click("#approve")
        expect(ann.page.locator("#hindrance")).to_contain_text("It waits for somebody else")
        assert propose(world, "transfer_all", amount=1_000_000)["status"] == "pending"
        second.log_in(world.interlock, "--token-file", str(bob))
        open_newest(second.page, world, "transfer_all")
        expect(second.page.locator(".facts")).to_contain_text("1 of 2 approved")
        second.page.click("#approve")
        expect(second.page.locator("#state")).to_have_text("approved")
    proposed = propose(world, "transfer_all", amount=1_000_000)
    commit(world, "transfer_all", proposed, amount=1_000_000)
    assert ran(world, "transfer_all") == 1


def test_who_runs_the_agent_does_not_approve_for_it(browser: Browser, world: World, bob: Path) -> None:
    propose(world, "transfer_own", amount=5)
    with open_tab(browser) as tab:
        tab.log_in(world.interlock, "--token-file", str(bob))
        open_newest(tab.page, world, "transfer_own")
        expect(tab.page.locator("#hindrance")).to_contain_text("You run the agent agent")
        expect(tab.page.locator("#approve")).to_have_count(0)


def test_the_next_calls_like_it_run_without_asking_again(browser: Browser, world: World) -> None:
    before = ran(world, "transfer_funds")
    propose(world, amount=10, to="carol")
    with open_tab(browser) as tab:
        tab.log_in(world.interlock)
        open_newest(tab.page, world, "transfer_funds")
        tab.page.locator("#next summary").click()
        tab.page.fill("#next_calls", "2")
        tab.page.get_by_label("amount").check()
        tab.page.click("#approve")
        expect(tab.page.locator("#state")).to_have_text("approved")
        visit(tab.page, f"{world.interlock.console_url}/approvals")
        expect(tab.page.get_by_text("2 of 2")).to_be_visible()
    for amount in (11, 12):
        commit(world, "transfer_funds", propose(world, amount=amount, to="carol"), amount=amount, to="carol")
    assert ran(world, "transfer_funds") == before + 2
    assert propose(world, amount=13, to="carol")["status"] == "pending"
    assert propose(world, amount=11, to="mallory")["status"] == "pending"


@pytest.mark.parametrize(("size", "dark"), [(PHONE, False), ((1360, 850), True)])
def test_nothing_hinders_and_everything_fits(size: tuple[int, int], dark: bool, browser: Browser, world: World) -> None:
    propose(world, amount=77, to="<img src=x onerror=window.__ran=1>\u202e")
    with open_tab(browser, size, dark=dark, bypass_csp=True) as tab:
        tab.log_in(world.interlock)
        visit(tab.page, f"{world.interlock.console_url}/approvals")
        assert findings(tab.page) == []
        open_newest(tab.page, world, "transfer_funds")
        assert findings(tab.page) == []
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert tab.page.evaluate("window.__ran") is None
        check_shown(tab)


def check_shown(tab: Tab) -> None:
    text = tab.page.locator("#main").inner_text()
    assert "\u202e" not in text
