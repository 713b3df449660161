"""Other ways to sign in, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.console.test_oidc_page import write_settings
from tests.support.browser import Tab, console_link, open_tab, start_browser, visit
from tests.support.console_world import World, start_world
from tests.support.harness import free_port
from tests.support.oidc_issuer import start_issuer


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as started:
        yield started


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder, port = tmp_path_factory.mktemp("world"), free_port()
    with start_issuer() as issuer:
        flags = ("--console-listen", f"127.0.0.1:{port}", "--console-url", f"http://127.0.0.1:{port}")
        oidc = write_settings(folder, issuer.url)
        with start_world(folder, flags=(*flags, "--console-oidc", str(oidc))) as started:
            yield started


def add_authenticator(tab: Tab) -> None:
    chrome = tab.context.new_cdp_session(tab.page)
    chrome.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    options |= {"isUserVerified": True, "automaticPresenceSimulation": True}
    chrome.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def test_an_operator_registers_a_passkey_and_logs_in_with_it(browser: Browser, world: World) -> None:
    link = console_link(world.interlock)
    named = world.interlock.console_url.replace("127.0.0.1", "localhost")
    with open_tab(browser) as tab:
        page = tab.page
        add_authenticator(tab)
        page.goto(link.replace("127.0.0.1", "localhost"))
        page.wait_for_url("**/calls**")
        visit(page, f"{named}/sign-in")
        page.get_by_label("Name of a new passkey").fill("Laptop")
        page.get_by_role("button", name="Add a passkey").click()
        expect(page.get_by_text("Laptop", exact=True).first).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/login?ended=1")
        page.goto(f"{named}/approvals")
        page.get_by_role("button", name="Use a passkey").click()
        page.wait_for_url("**/approvals")
        expect(page.get_by_role("link", name="operator")).to_be_visible()


def test_by_its_address_the_console_says_where_passkeys_are(browser: Browser, world: World) -> None:
    with open_tab(browser) as tab:
        tab.log_in(world.interlock)
        visit(tab.page, f"{world.interlock.console_url}/sign-in")
        expect(tab.page.get_by_role("link", name="localhost")).to_be_visible()


def test_an_operator_signs_in_at_another_site_and_comes_back_with_a_session(browser: Browser, world: World) -> None:
    with open_tab(browser) as tab:
        page = tab.page
        page.goto(f"{world.interlock.console_url}/approvals")
        page.get_by_role("link", name="Sign in with your organisation").click()
        page.get_by_role("link", name="Agree").click()
        page.wait_for_url("**/approvals")
        expect(page.get_by_role("link", name="ann approver")).to_be_visible()
