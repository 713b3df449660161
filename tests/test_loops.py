"""The proxy runs on uvloop where that works, and on asyncio's own loop otherwise."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import uvloop

from proxy import loops
from tests.harness import REPOSITORY


async def nothing() -> None:
    await asyncio.Task(asyncio.sleep(0), loop=asyncio.get_running_loop(), eager_start=True)


async def look() -> None:
    await nothing()
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
    assert loops.IO_URING not in os.environ
    names = [name.read_text() for name in Path("/proc/self/task").glob("*/comm")]
    assert not [name for name in names if name.startswith("iou-")]


def test_uvloop_is_taken_where_it_is_installed_and_starts_tasks_at_once_and_no_thread_in_the_kernel():
    # libuv settles it when it is first used, so not in this process, where it was.
    code = "import asyncio; from tests.test_loops import look; from proxy import loops; loops.run(look())"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True, timeout=60)


def test_a_uvloop_that_is_missing_or_known_to_be_broken_is_not_taken(monkeypatch):
    monkeypatch.setattr(uvloop, "__version__", loops.BROKEN[0])
    assert loops.loop_factory() is None
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loops.loop_factory() is None
    loops.run(nothing())
