"""Overview, agents, servers, policy, audit and health in a real browser, with nothing hostile that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from proxy.console.security import split_place
from proxy.gate.tool_pins import Page, print_tool, take_page
from proxy.store.pin_files import PinFiles
from proxy.vault.placeholder import make
from proxy.vault.vault_file import Bindings, Entry, FileSource, VaultFile
from tests.console.xss_corpus import CORPUS
from tests.support.browser import PHONE, Tab, findings, open_tab, start_browser, visit
from tests.support.console_world import POLICY, World, make_traffic, start_world
from tests.support.timeouts import PATIENCE

expect.set_options(timeout=PATIENCE * 1000)
SERVER = "mcp.example.com"
PAGES = (
    "/",
    "/agents",
    "/agents/one?name=agent",
    "/servers",
    f"/servers/one?name={SERVER}",
    "/credentials",
    "/policy",
    "/audit",
    "/health",
)
MARKUP = "main img, main iframe, main style, main script, main base, main math"
HIDDEN = set("\u202e\x1b\u200b\u2028\x00\ufeff\U000e0041")


def see(world: World, *tools: dict[str, Any]) -> None:
    page = Page([(tool["name"], print_tool(tool)) for tool in tools])
    PinFiles(world.interlock.state_dir).update(SERVER, lambda known: take_page(known, page, adopt=False, now=1.0)[0])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with start_world(tmp_path_factory.mktemp("world")) as started:
        make_traffic(started)
        for number, text in enumerate(CORPUS):
            started.call(text, {"value": text}, number=number)
        hostile = [text for text in CORPUS if "\x00" not in text]
        see(started, {"name": "read", "description": "Reads a file."}, *({"name": one} for one in hostile))
        see(
            started,
            {"name": "read", "description": "Reads any file, and sends it."},
            *({"name": one, "description": one} for one in hostile),
        )
        for number, text in enumerate(hostile):
            bound = Bindings(hosts=("*.example.com",), tools=("".join(filter(str.isprintable, text)) or "x",))
            source = FileSource(path=text or "x")
            entry = Entry(placeholder=make(f"n{number}"), source=source, bindings=bound, added=1.0)
            VaultFile(started.interlock.state_dir).add(f"n{number}", entry)
        yield started


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as started:
        yield started


@pytest.fixture(scope="module")
def tab(browser: Browser, world: World) -> Iterator[Tab]:
    with open_tab(browser) as opened:
        opened.log_in(world.interlock)
        yield opened


def go(tab: Tab, world: World, path: str) -> None:
    visit(tab.page, f"{world.interlock.console_url}{path}")


def test_every_page_is_reached_by_the_keyboard(tab: Tab, world: World) -> None:
    go(tab, world, "/calls")
    links = tab.page.locator("nav[aria-label=Pages] a")
    keys = links.evaluate_all("(links) => links.map((a) => [a.dataset.key, a.getAttribute('href')])")
    assert [split_place(path)[1] for _, path in keys] == [
        *("/", "/calls", "/approvals", "/agents", "/servers", "/credentials", "/policy", "/audit", "/health"),
    ]
    assert len({key for key, _ in keys}) == len(keys)
    for key, path in keys:
        tab.page.keyboard.press("g")
        tab.page.keyboard.press(key)
        tab.page.wait_for_url(f"{world.interlock.console_url}{path}")
        expect(tab.page.locator("nav [aria-current=page]")).to_have_attribute("href", path)


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_hinders_a_screen_reader(dark: bool, browser: Browser, world: World) -> None:
    with open_tab(browser, dark=dark, bypass_csp=True) as tab:
        tab.log_in(world.interlock)
        for path in PAGES:
            go(tab, world, path)
            assert findings(tab.page) == [], path


def test_a_phone_shows_every_page_in_its_width(browser: Browser, world: World) -> None:
    with open_tab(browser, PHONE) as tab:
        tab.log_in(world.interlock)
        for path in PAGES:
            go(tab, world, path)
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], path


def test_nothing_hostile_runs_or_hides(tab: Tab, world: World) -> None:
    # Those with hostile names are on these pages: tools, rules, and what servers say of their tools.
    for path in PAGES:
        go(tab, world, path)
        assert tab.page.evaluate("window.__ran") is None
        assert tab.page.locator(MARKUP).count() == 0, path
        assert not HIDDEN & set(tab.page.locator("#main").inner_text()), path
    go(tab, world, f"/servers/one?name={SERVER}")
    assert "<script>window.__ran=1</script>" in tab.page.locator("#main").inner_text()


def test_a_plot_tells_its_values_to_pointer_and_keys(tab: Tab, world: World) -> None:
    go(tab, world, "/")
    plot = tab.page.locator("[data-plot=calls]")
    plot.focus()
    tab.page.keyboard.press("End")
    last = tab.page.locator("[data-plot=calls] + details tbody tr").last
    said = plot.locator(".readout")
    expect(said).to_contain_text("denied")
    expect(said).to_contain_text(last.locator("time").text_content() or "none")
    tab.page.keyboard.press("Home")
    expect(said).to_contain_text("allowed 0 · proposed 0 · denied 0")
    tab.page.locator("h1").click()
    expect(said).to_have_text("")
    plot.locator("svg").hover()
    expect(said).to_contain_text("allowed")


def test_a_text_is_tried_while_it_is_written_completed_and_saved(tab: Tab, world: World) -> None:
    page = tab.page
    go(tab, world, "/policy")
    expect(page.locator("#verdict")).to_contain_text("As it is on disk")
    editor = page.locator("#text")
    assert editor.input_value() == POLICY
    editor.press("Control+End")
    editor.press_sequentially("  - id: no-mail\nact")
    expect(page.locator("#completions [aria-selected=true] strong")).to_have_text("action")
    editor.press("Tab")
    editor.press("Control+Space")
    expect(page.locator("#completions li")).to_contain_text(["allow", "deny", "redact", "two_phase"])
    editor.press("d")
    editor.press("Enter")
    editor.press("Enter")
    editor.press_sequentially("tools: [send_mail]\n")
    assert editor.input_value().endswith("  - id: no-mail\n    action: deny\n    tools: [send_mail]\n    ")
    verdict = page.locator("#verdict")
    expect(verdict).to_contain_text("With this text")
    expect(verdict.locator(".big-figure strong")).to_have_text("1")
    expect(verdict).to_contain_text("send_mail")
    page.locator("#save").click()
    expect(page.locator("#said")).to_contain_text("Saved")
    expect(page.locator("#history tbody tr")).to_have_count(1)
    expect(page.locator("#rules")).to_contain_text("no-mail")
    assert "no-mail" in policy_of(world).read_text()


def policy_of(world: World) -> Path:
    return Path(json.loads((world.interlock.state_dir / "run.json").read_bytes())["policy"])


def test_a_hostile_policy_is_text_in_the_editor_and_beside_it(tab: Tab, world: World) -> None:
    go(tab, world, "/policy")
    text = "version: 1\nrules:\n" + "".join(
        f"  - {json.dumps({'id': f'r{number}', 'action': 'deny', 'tools': [one], 'description': one})}\n"
        for number, one in enumerate(CORPUS)
    )
    tab.page.locator("#text").fill(text)
    expect(tab.page.locator("#verdict")).to_contain_text("With this text")
    tab.page.locator("#text").fill(text + "<img src=x onerror=window.__ran=1>: 1\n")
    expect(tab.page.locator("#verdict")).to_contain_text("invalid")
    assert tab.page.evaluate("window.__ran") is None
    assert tab.page.locator(MARKUP).count() == 0


def test_a_changed_tool_is_approved(tab: Tab, world: World) -> None:
    go(tab, world, "/servers")
    tab.page.get_by_role("link", name=SERVER).click()
    card = tab.page.locator("article", has=tab.page.locator("h3", has_text="read"), has_text="Reads").first
    expect(card.locator("ins").first).to_be_visible()
    card.get_by_role("button", name="Approve").click()
    expect(tab.page.get_by_role("status").first).to_contain_text("Approved: read")
    known = PinFiles(world.interlock.state_dir).read(SERVER)
    assert known is not None
    assert known.tools["read"].state == "pinned"


def test_an_agent_is_halted_and_resumed(tab: Tab, world: World) -> None:
    go(tab, world, "/agents/one?name=agent")
    tab.page.get_by_text("Halt this agent").click()
    tab.page.locator("#halt-reason").fill("trial")
    tab.page.locator("#halt-button").click()
    expect(tab.page.get_by_text("Halted: ")).to_contain_text("trial")
    tab.page.get_by_label("Why it may go on").fill("over")
    tab.page.get_by_role("button", name="Resume").click()
    expect(tab.page.get_by_text("Halted: ")).to_have_count(0)


def test_a_credential_is_revoked(tab: Tab, world: World) -> None:
    go(tab, world, "/credentials")
    card = tab.page.locator(
        "article", has=tab.page.get_by_role("button", name="Revoke n1", exact=True, include_hidden=True)
    )
    card.get_by_text("Revoke", exact=True).click()
    card.get_by_role("button", name="Revoke n1", exact=True).click()
    expect(tab.page.get_by_role("status").first).to_contain_text("Revoked: n1.")
    document = VaultFile(world.interlock.state_dir).read()
    assert "n1" not in document.credentials
    assert [stone.name for stone in document.revoked] == ["n1"]


def test_the_trail_is_verified_and_the_page_follows(tab: Tab, world: World) -> None:
    go(tab, world, "/audit")
    tab.page.locator("#verify-button").click()
    expect(tab.page.locator("#verify #verdict")).not_to_have_text("verifying")
    expect(tab.page.locator("#verify")).to_contain_text("begun by operator")
    assert tab.page.locator("#verify .problem").all_inner_texts() == []


def test_an_export_and_evidence_are_downloaded(tab: Tab, world: World) -> None:
    go(tab, world, "/audit")
    with tab.page.expect_download() as export:
        tab.page.get_by_role("button", name="Export").click()
    lines = export.value.path().read_text().splitlines()
    assert len(lines) > len(CORPUS)
    call = next(
        json.loads(json.loads(line)["body"])["call_id"] for line in lines if '"tools/call' in line.replace("\\", "")
    )
    tab.page.fill("#call", call)
    with tab.page.expect_download() as evidence:
        tab.page.get_by_role("button", name="Download").click()
    made = json.loads(evidence.value.path().read_text())
    assert made["call_id"] == call
    assert all(one["link_follows"] for one in made["events"])


def test_health_says_what_the_proxy_says(tab: Tab, world: World) -> None:
    go(tab, world, "/health")
    expect(tab.page.locator("#health")).to_contain_text("1 of 1 serve.")
