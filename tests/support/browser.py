"""A real browser for tests of the console: Debian's Chromium, driven by Playwright.

It is the build without a window of its own: the same engine draws the pages, for half of the processor time. Use it in
fixtures of a module, not of the session: while Playwright runs, no other event loop can run in its thread.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.support.harness import REPOSITORY, Interlock
from tests.support.timeouts import PATIENCE

CHROMIUM = Path("/usr/bin/chromium-headless-shell")
AXE = REPOSITORY / "tests/node/node_modules/axe-core/axe.min.js"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE = (390, 844)
DESKTOP = (1360, 850)


@contextlib.contextmanager
def start_browser() -> Iterator[Browser]:
    """Run a headless browser until the block ends."""
    assert CHROMIUM.exists(), "install Debian's chromium-headless-shell (scripts/system-packages does)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE * 1000)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """A page in a browser of its own, and what went wrong in it: errors, and what the page's policy forbade."""

    page: Page
    context: BrowserContext
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", self._on_dialog)

    def _on_console(self, message: ConsoleMessage) -> None:
        # Chromium reports what the Content-Security-Policy or Trusted Types forbade as errors, too.
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _on_dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def log_in(self, interlock: Interlock, *arguments: str) -> None:
        """Open the console by a one-time link."""
        self.page.goto(console_link(interlock, *arguments))
        self.page.wait_for_url("**/calls**")


@contextlib.contextmanager
def open_tab(
    browser: Browser, size: tuple[int, int] = DESKTOP, *, dark: bool = False, strict: bool = True, **options: Any
) -> Iterator[Tab]:
    """Open a page with cookies of its own. A `strict` one must end without an error, a warning or a dialog."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        timezone_id="UTC",
        reduced_motion="reduce",
        **options,
    )
    context.set_default_timeout(PATIENCE * 1000)
    tab = Tab(context.new_page(), context)
    try:
        yield tab
        assert not strict or tab.problems == [], tab.problems
    finally:
        context.close()


def visit(page: Page, url: str) -> None:
    """Open a page of the console while logged in; the login page leads on to the session's own pages."""
    page.goto(url)
    page.wait_for_url("**/s-*/**")


def console_link(interlock: Interlock, *arguments: str) -> str:
    done = interlock.cli("console", "--print", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def findings(page: Page) -> list[str]:
    """Return what axe-core finds serious or critical on a page; its context must be made with `bypass_csp=True`."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {json.dumps([node['html'][:160] for node in one['nodes'][:3]])}" for one in serious]
