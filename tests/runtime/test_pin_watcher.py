"""Noticing what somebody else approved."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.errors import PinsUnavailableError
from proxy.gate.tool_pins import Page, approve, print_tool, take_page
from proxy.runtime import pin_watcher
from proxy.store.pin_files import PinFiles
from tests.support.timeouts import PATIENCE


class FailingOnce(PinFiles):
    """Notes that the pins could not be read."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self.failed = asyncio.Event()

    def approvals(self) -> dict[str, int]:
        try:
            return super().approvals()
        except PinsUnavailableError:
            self.failed.set()
            raise


def see(store: PinFiles, server: str) -> None:
    page = Page([("t", print_tool({"name": "t"}))])
    store.update(server, lambda known: take_page(known, page, adopt=False, now=1.0)[0])


@contextlib.asynccontextmanager
async def watching(store: PinFiles) -> AsyncIterator[asyncio.Queue[str]]:
    heard: asyncio.Queue[str] = asyncio.Queue()
    task = asyncio.create_task(pin_watcher.watch_approvals(store, heard.put_nowait))
    await asyncio.sleep(0)
    yield heard
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pin_watcher, "POLL_SECONDS", 0.01)


async def test_an_approval_and_a_forgotten_server_are_told_and_a_sighting_is_not(tmp_path: Path) -> None:
    theirs = PinFiles(tmp_path)
    see(theirs, "a:1")
    async with asyncio.timeout(PATIENCE), watching(PinFiles(tmp_path)) as heard:
        see(theirs, "b:1")
        theirs.update("a:1", lambda known: approve(known, None, 2.0))
        assert await heard.get() == "a:1"
        theirs.update("b:1", lambda known: approve(known, None, 2.0))
        assert await heard.get() == "b:1"
        theirs.update("a:1", lambda _: None)
        assert await heard.get() == "a:1"
        assert heard.empty()


async def test_a_server_seen_and_approved_between_two_looks_is_told(tmp_path: Path) -> None:
    theirs = PinFiles(tmp_path)
    async with asyncio.timeout(PATIENCE), watching(PinFiles(tmp_path)) as heard:
        see(theirs, "a:1")
        theirs.update("a:1", lambda known: approve(known, None, 2.0))
        assert await heard.get() == "a:1"


async def test_pins_that_cannot_be_read_do_not_end_the_watch(tmp_path: Path) -> None:
    theirs = PinFiles(tmp_path)
    see(theirs, "a:1")
    (file,) = theirs.folder.glob("*.json")
    good = file.read_bytes()
    store = FailingOnce(tmp_path)
    async with asyncio.timeout(PATIENCE), watching(store) as heard:
        file.write_bytes(b"{")
        await store.failed.wait()
        file.write_bytes(good)
        theirs.update("a:1", lambda known: approve(known, None, 2.0))
        assert await heard.get() == "a:1"
