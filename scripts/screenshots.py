"""Take the pictures of the console into docs/pictures/console-*.png, in a real browser on a proxy with made-up traffic.

`--only NAME` takes one of them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Page  # noqa: E402

from tests.support.browser import PHONE, open_tab, start_browser, visit  # noqa: E402
from tests.support.console_world import World, fill_an_hour, make_traffic, start_world  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
SIZE = (1280, 800)
MAX_BYTES = 200_000


def live(page: Page, world: World) -> None:
    """Show the list of calls, as it follows what happens."""
    page.wait_for_selector("#live-dot[data-state=live]")
    make_traffic(world)
    page.locator("#rows tr", has_text="send_mail").first.locator("text=done").wait_for(state="attached")


def call(page: Page, world: World) -> None:
    """Show one call that was denied, and why."""
    refused = world.call("read_file", {"path": "/srv/app/../../etc/shadow"})
    visit(page, f"{world.interlock.console_url}/calls/{world.audit_id(refused)}")


def approval(page: Page, world: World) -> None:
    """Show a proposal that waits, beside the last one that was approved."""
    proposed = world.propose(amount=2400, to="mallory", memo="urgent")
    visit(page, f"{world.interlock.console_url}/approvals/{proposed['proposal_id']}")
    page.wait_for_selector("#approve:enabled")


def overview(page: Page, world: World) -> None:
    """Show an hour of traffic."""
    fill_an_hour(world.interlock.state_dir)
    visit(page, f"{world.interlock.console_url}/?since=1h")
    plot = page.locator("[data-plot=calls]")
    box = plot.locator("svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 40)


def policy(page: Page, world: World) -> None:
    """Show a rule that is being written, and what it would change."""
    visit(page, f"{world.interlock.console_url}/policy")
    editor = page.locator("#text")
    editor.press("Control+End")
    editor.press_sequentially("  - id: no-mail\naction: deny\ntools: [send_mail]\n")
    page.locator("#verdict", has_text="With this text").locator("text=send_mail").first.wait_for()
    editor.press_sequentially("se")
    page.locator("#completions li").first.wait_for()


type Shot = tuple[Callable[[Page, World], None], tuple[int, int], bool]
# Name, what is on it, the size, and whether it is dark.
SHOTS: dict[str, Shot] = {
    "live": (live, SIZE, False),
    "live-dark": (live, SIZE, True),
    "call": (call, (1280, 1000), False),
    "approval": (approval, SIZE, False),
    "overview": (overview, (1280, 900), False),
    "overview-dark": (overview, (1280, 900), True),
    "policy": (policy, (1280, 900), False),
    "phone": (live, PHONE, False),
}


def prepare(page: Page, world: World) -> None:
    """Let the agent work for a while, and approve one transfer."""
    make_traffic(world)
    proposed = world.propose(amount=100, to="bob")
    visit(page, f"{world.interlock.console_url}/approvals/{proposed['proposal_id']}")
    page.fill("#reason", "invoice 4711")
    page.click("#approve:enabled")
    page.locator("#state", has_text="approved").wait_for()


def main(arguments: list[str]) -> int:
    wanted = arguments[1:] if arguments[:1] == ["--only"] else list(SHOTS)
    with (
        tempfile.TemporaryDirectory() as folder,
        start_world(Path(folder), host="mcp.test") as world,
        start_browser() as browser,
    ):
        with open_tab(browser) as tab:
            tab.log_in(world.interlock)
            prepare(tab.page, world)
        for name in wanted:
            show, size, dark = SHOTS[name]
            with open_tab(browser, size, dark=dark) as tab:
                tab.log_in(world.interlock)
                show(tab.page, world)
                tab.page.evaluate("document.fonts.ready")
                file = FOLDER / f"console-{name}.png"
                tab.page.screenshot(path=file)
            print(f"{file.relative_to(ROOT)}: {file.stat().st_size} bytes")
            assert file.stat().st_size < MAX_BYTES, "a picture of the documentation must stay small"
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
