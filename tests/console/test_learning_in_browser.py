"""Learning and proposed rules in a real browser: from a proposal, and from the trail, to a policy that is saved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, expect

from tests.console.xss_corpus import CORPUS
from tests.support.browser import PHONE, Tab, findings, open_tab, start_browser, visit
from tests.support.console_world import World, make_traffic
from tests.support.harness import start_interlock, start_python_server
from tests.support.timeouts import PATIENCE

expect.set_options(timeout=PATIENCE * 1000)
POLICY = """\
version: 1
default: allow
rules:
  # what nobody may do
  - {id: no-shell, action: deny, tools: [shell]}
egress: {default: report}
"""
MARKUP = "main img, main iframe, main style, main script, main base, main math"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with (
        start_python_server("lenient", folder / "server") as server,
        start_interlock(folder / "proxy", policy=POLICY, settings={"rule_proposals": True}) as interlock,
    ):
        started = World(interlock, server)
        make_traffic(started)
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as started:
        yield started


@pytest.fixture
def tab(browser: Browser, world: World) -> Iterator[Tab]:
    with open_tab(browser) as opened:
        opened.log_in(world.interlock)
        yield opened


def go(tab: Tab, world: World, path: str) -> None:
    visit(tab.page, f"{world.interlock.console_url}{path}")


def propose(world: World, name: str, why: str) -> str:
    """Propose a rule as an agent does; return the proposal's id."""
    tests = [{"call": {"tool": "send_mail"}, "expect": "deny"}, {"call": {"tool": "read"}, "expect": "no_match"}]
    rule = {"id": name, "action": "deny", "description": CORPUS[0], "tools": ["send_mail"], "tests": tests}
    params = {"name": "policy.propose", "arguments": {"rule": rule, "why": why}}
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with httpx2.Client(proxy=world.interlock.proxy_url, trust_env=False, timeout=PATIENCE) as http:
        result = http.post("http://interlock.internal/mcp", json=body).json()["result"]
    return str(result["structuredContent"]["proposal_id"])


def policy_file(world: World) -> Path:
    return Path(json.loads((world.interlock.state_dir / "run.json").read_bytes())["policy"])


def test_a_proposed_rule_is_read_accepted_and_saved_by_a_person(tab: Tab, world: World) -> None:
    page, before = tab.page, policy_file(world).read_text()
    propose(world, "no-mail", f"I send too much. {CORPUS[0]} \u202e")
    go(tab, world, "/policy")
    page.locator("#proposed").get_by_role("link", name="no-mail").click()
    expect(page.locator("#rule")).to_contain_text("send_mail")
    expect(page.locator("#why")).to_contain_text("\\u202e")
    expect(page.locator("#proof")).to_contain_text("Proven")
    expect(page.locator("#effect .big-figure strong")).to_have_text("1")
    assert page.locator(MARKUP).count() == 0
    page.locator("#accept").click()
    expect(page.locator("#said")).to_contain_text("It is not saved")
    assert policy_file(world).read_text() == before
    assert page.locator("#text").input_value().index("no-mail") < page.locator("#text").input_value().index("no-shell")
    page.locator("#save").click()
    expect(page.locator("#said")).to_contain_text("Saved")
    expect(page.locator("#rules")).to_contain_text("no-mail")
    assert "# what nobody may do" in policy_file(world).read_text()
    expect(page.locator("#proposed")).to_have_count(0)


def test_a_proposed_rule_is_rejected_with_a_reason(tab: Tab, world: World) -> None:
    page = tab.page
    name = propose(world, "no-mail-2", "again")
    go(tab, world, f"/policy/proposals/{name}")
    page.locator("#reason").fill("there is one already")
    page.locator("#reject").click()
    page.wait_for_url("**/policy#proposed")
    go(tab, world, f"/policy/proposals/{name}")
    expect(page.locator("#state")).to_have_text("rejected")
    expect(page.locator("#decide")).to_have_count(0)


def test_a_policy_is_learned_tried_and_left_unsaved(tab: Tab, world: World) -> None:
    page, before = tab.page, policy_file(world).read_text()
    go(tab, world, "/policy")
    page.locator("#learn-agent").fill("agent")
    page.locator("#learn-start").click()
    expect(page.locator("#learned")).to_contain_text("Learned from")
    assert "default: deny" in page.locator("#text").input_value()
    expect(page.locator("#verdict")).to_contain_text("valid")
    row = page.locator("#evidence tbody tr", has_text="search_code")
    assert policy_file(world).read_text() == before
    row.locator("a").first.click()
    expect(page.locator("h1")).to_contain_text("search_code")


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_hinders_a_screen_reader_or_a_phone(dark: bool, browser: Browser, world: World) -> None:
    name = propose(world, f"no-mail-{dark}", " ".join(CORPUS)[:400])
    size = {"size": PHONE} if dark else {}
    with open_tab(browser, dark=dark, bypass_csp=True, **size) as tab:
        tab.log_in(world.interlock)
        for path in (f"/policy/proposals/{name}", "/policy?learn=7d", "/policy"):
            go(tab, world, path)
            assert findings(tab.page) == [], path
            assert not dark or tab.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], path
