"""The proxy runs on uvloop where that works, and on asyncio's own loop otherwise."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from proxy import loops


async def nothing() -> None:
    await asyncio.Task(asyncio.sleep(0), loop=asyncio.get_running_loop(), eager_start=True)


def test_uvloop_is_taken_where_it_is_installed_and_starts_tasks_at_once():
    assert loops.loop_factory() is uvloop.new_event_loop
    loops.run(nothing())


def test_a_uvloop_that_is_missing_or_known_to_be_broken_is_not_taken(monkeypatch):
    monkeypatch.setattr(uvloop, "__version__", loops.BROKEN[0])
    assert loops.loop_factory() is None
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loops.loop_factory() is None
    loops.run(nothing())
