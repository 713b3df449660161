"""The proxy runs on uvloop where that works, and on asyncio's own loop otherwise."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import uvloop

from proxy.system import event_loop
from tests.support.harness import REPOSITORY


async def nothing() -> None:
    await asyncio.Task(asyncio.sleep(0), loop=asyncio.get_running_loop(), eager_start=True)


async def look() -> None:
    await nothing()
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
    assert event_loop.IO_URING not in os.environ
    names = [name.read_text() for name in Path("/proc/self/task").glob("*/comm")]
    assert not [name for name in names if name.startswith("iou-")]


def test_uvloop_is_taken_where_it_is_installed_and_starts_tasks_at_once_and_no_thread_in_the_kernel():
    # libuv settles it when it is first used, so not in this process, where it was.
    code = "from tests.system.test_event_loop import look; from proxy.system import event_loop; event_loop.run(look())"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True, timeout=60)


def test_a_uvloop_that_is_missing_or_known_to_be_broken_is_not_taken(monkeypatch):
    monkeypatch.setattr(uvloop, "__version__", event_loop.BROKEN[0])
    assert event_loop.loop_factory() is None
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop.loop_factory() is None
    event_loop.run(nothing())
