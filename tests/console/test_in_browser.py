"""The console in a real browser: login, live calls, keys, widths, and nothing hostile that runs."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, expect

from tests.console.xss_corpus import CORPUS
from tests.support.browser import PHONE, Tab, console_link, findings, open_tab, start_browser, visit
from tests.support.console_world import World, make_traffic, start_world
from tests.support.timeouts import PATIENCE

HIDDEN = set("\u202e\x1b\u200b\u2028\x00\ufeff\U000e0041")
expect.set_options(timeout=PATIENCE * 1000)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with start_world(tmp_path_factory.mktemp("world")) as started:
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


def follow(tab: Tab) -> None:
    """Wait until the list follows what happens."""
    tab.page.wait_for_selector("#live-dot[data-state=live]")


def test_a_link_logs_in_once_and_leaves_no_secret_in_the_address(browser: Browser, world: World) -> None:
    link = console_link(world.interlock)
    with open_tab(browser) as tab:
        tab.page.goto(link)
        tab.page.wait_for_url("**/calls")
        assert tab.page.evaluate("document.cookie") == ""
        (cookie,) = tab.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        tab.page.go_back()
        assert "ill_" not in tab.page.url
    with open_tab(browser, strict=False) as tab:
        tab.page.goto(link)
        expect(tab.page.get_by_role("alert")).to_contain_text("was used or is too old")


class _Listener(http.server.BaseHTTPRequestHandler):
    """A page that an agent serves on another port of the same host, and keeps what it is sent."""

    def do_GET(self) -> None:
        self.server.cookies.append(self.headers.get("cookie", ""))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>mine</title>")

    def log_message(self, *_: object) -> None:
        pass


def test_a_page_on_another_port_of_the_host_gets_no_session(tab: Tab, world: World) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Listener) as server:
        server.cookies = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        for path in ("/", "/calls", "/approvals", "/s-/calls"):
            tab.page.goto(f"http://127.0.0.1:{port}{path}")
        assert server.cookies[:1] == [""]  # type: ignore[attr-defined]
        assert set(server.cookies) == {""}  # type: ignore[attr-defined]
        # Nor can its scripts find the path: storage is an origin's own, and a port makes another origin.
        assert tab.page.evaluate("[document.cookie, localStorage.length]") == ["", 0]
        server.shutdown()
    # The session goes on: a link without its path leads to it.
    tab.page.goto(f"{world.interlock.console_url}/approvals")
    tab.page.wait_for_url("**/s-*/approvals")
    expect(tab.page.get_by_role("link", name="operator")).to_be_visible()


def delay(tab: Tab, world: World, tool: str) -> float:
    """Make a call; return the milliseconds from its decision to its line on the screen, as the browser sees them."""
    tab.page.evaluate(
        """(tool) => {
          window.seen = new Promise((resolve) => new MutationObserver((changes) => {
            for (const change of changes) for (const row of change.addedNodes)
              if (row.querySelector?.(".tool")?.textContent === tool)
                resolve(Date.now() - Date.parse(row.querySelector("time").getAttribute("datetime")));
          }).observe(document.querySelector("#rows"), {childList: true}));
        }""",
        tool,
    )
    world.call(tool, {})
    return float(tab.page.evaluate("window.seen"))


def test_a_live_call_appears_within_a_second_and_its_end_follows(tab: Tab, world: World) -> None:
    follow(tab)
    # A machine with much else to do may be late now and then; what waits for a timer is late every time.
    tools = (f"just_now_{number}" for number in range(10))
    prompt = next((tool for tool in tools if delay(tab, world, tool) < 1000), None)
    assert prompt is not None
    row = tab.page.locator("tr", has_text=prompt).first
    expect(row.locator(".ending")).to_have_text("done")
    expect(row.locator(".chip")).to_have_text("allowed")


def test_a_paused_list_stands_still_and_goes_on(tab: Tab, world: World) -> None:
    follow(tab)
    tab.page.keyboard.press("p")
    expect(tab.page.locator("#live-text")).to_have_text("paused")
    before = tab.page.locator("#rows tr").count()
    world.call("while_paused", {})
    expect(tab.page.locator("#new-calls")).to_have_text("1 new")
    assert tab.page.locator("#rows tr").count() == before
    tab.page.locator("#new-calls").click()
    expect(tab.page.locator("#rows tr").first).to_contain_text("while_paused")


def test_a_filter_holds_for_what_comes_live(tab: Tab, world: World) -> None:
    tab.page.select_option("select[name=decision]", "deny")
    tab.page.wait_for_url("**decision=deny**")
    follow(tab)
    for chip in tab.page.locator("#rows .chip").all_text_contents():
        assert chip == "denied"
    world.call("not_denied", {})
    world.call("read_file", {"path": "/etc/live-filter"})
    expect(tab.page.locator("#rows tr").first).to_contain_text("live-filter")
    assert "not_denied" not in tab.page.locator("#rows").inner_text()


def test_the_list_is_used_by_keyboard(tab: Tab) -> None:
    page = tab.page
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    chosen = page.locator("tr.chosen")
    expect(chosen).to_have_count(1)
    expect(page.locator("#rows tr").first).to_have_class("chosen")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_hinders_a_screen_reader(dark: bool, browser: Browser, world: World) -> None:
    with open_tab(browser, dark=dark, bypass_csp=True) as tab:
        tab.page.goto(f"{world.interlock.console_url}/login")
        assert findings(tab.page) == []
        tab.log_in(world.interlock)
        follow(tab)
        assert findings(tab.page) == []
        tab.page.locator("#rows a").first.click()
        tab.page.wait_for_url("**/calls/*")
        assert findings(tab.page) == []


def test_a_phone_shows_everything_in_its_width(browser: Browser, world: World) -> None:
    with open_tab(browser, PHONE) as tab:
        tab.log_in(world.interlock)
        follow(tab)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        for name in (".tool", ".chip", "time", "td.why"):
            box = tab.page.locator(f"#rows tr:first-child {name}").first.bounding_box()
            assert box is not None
            assert 0 <= box["x"] <= PHONE[0] - box["width"], name
        tab.page.locator("#rows a").first.click()
        tab.page.wait_for_url("**/calls/*")
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        tab.page.go_back()
        tops = [one.bounding_box() for one in tab.page.locator("#rows tr").all()[:4]]
        assert all(one["y"] < other["y"] for one, other in pairwise(filter(None, tops)))


def test_the_theme_is_chosen_and_kept(tab: Tab) -> None:
    shown = "getComputedStyle(document.body).backgroundColor"
    light = tab.page.evaluate(shown)
    tab.page.locator("#theme-button").click()
    dark = tab.page.evaluate(shown)
    assert dark != light
    tab.page.reload()
    assert tab.page.evaluate(shown) == dark


def test_a_revoked_operator_is_led_out_of_an_open_page(browser: Browser, world: World) -> None:
    token = world.interlock.state_dir.parent / "eve.token"
    token.write_text(world.interlock.cli("operators", "add", "eve").stdout)
    with open_tab(browser, strict=False) as tab:
        tab.log_in(world.interlock, "--token-file", str(token))
        follow(tab)
        world.interlock.cli("operators", "revoke", "eve")
        tab.page.wait_for_url("**/login**")


def test_a_call_opens_as_a_timeline_and_becomes_a_rule(tab: Tab, world: World) -> None:
    refused = world.call("read_file", {"path": "/srv/app/../../etc/shadow"})
    page = tab.page
    visit(page, f"{world.interlock.console_url}/calls?tool=read_file&decision=deny")
    expect(page.locator(f"#rows tr:first-child a[href$='{world.audit_id(refused)}']").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/calls/{world.audit_id(refused)}")
    expect(page.locator("#timeline")).to_contain_text("no-system-files")
    expect(page.locator("#why")).to_contain_text("/etc/shadow/")
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy audit id").click()
    expect(page.locator("#toast")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == world.audit_id(refused)
    page.get_by_role("button", name="Replay against this draft").click()
    expect(page.locator("#result")).to_contain_text("2 tests pass")
    page.keyboard.press("Escape")
    page.wait_for_url("**/calls")


def test_nothing_hostile_runs_or_hides(browser: Browser, world: World) -> None:
    with open_tab(browser) as tab:
        tab.log_in(world.interlock)
        follow(tab)
        for number, text in enumerate(CORPUS):
            world.call(text, {"value": text, text: [text]}, number=number)
            world.call("echo", {"value": text}, number=number)
            # A page leaves some out of what comes at once, so it gets them a few at a time.
            if number % 8 == 7:
                world.call(f"corpus_{number}", {})
                expect(tab.page.locator("#rows")).to_contain_text(f"corpus_{number}")
        world.call("corpus_end", {})
        expect(tab.page.locator("#rows")).to_contain_text("corpus_end")
        # Live, and as the server draws it.
        for _ in range(2):
            assert tab.page.evaluate("window.__ran") is None
            assert tab.page.locator("main img, main iframe, main style, main script, main svg, main base").count() == 0
            # What is live comes in the order in which it is found, which need not be that of the calls.
            for text in ("<script>window.__ran=1</script>", "\\u202egnp.exe\\u202c"):
                expect(tab.page.locator("#rows")).to_contain_text(text)
            shown = tab.page.locator("#rows").inner_text()
            assert not HIDDEN & set(shown)
            tab.page.reload()
            follow(tab)
        for address in tab.page.evaluate("[...document.querySelectorAll('#rows a')].slice(0, 50).map((a) => a.href)"):
            tab.page.goto(address)
            assert tab.page.evaluate("window.__ran") is None
            assert tab.page.locator("main img, main iframe, main style, main script, main svg, main base").count() == 0
            assert not HIDDEN & set(tab.page.locator("#main").inner_text())
