"""Letting go of old events: signed first, deleted then. What verification makes of it is in test_verify."""

from __future__ import annotations

from pathlib import Path

from proxy.store.events import Events
from proxy.store.retention import prune
from tests.trail_world import START, move, notary, signed, write


async def test_where_each_chain_begins_is_signed(tmp_path: Path, events: Events) -> None:
    head = write(tmp_path, range(1, 11))
    await move(tmp_path, events)
    assert await prune(events, START + 4, notary(tmp_path)) == 3
    assert signed(tmp_path)[head.writer].pruned == 3
    assert await prune(events, START + 4, notary(tmp_path)) == 0


async def test_nothing_old_is_nothing_signed(tmp_path: Path, events: Events) -> None:
    assert await prune(events, START, notary(tmp_path)) == 0
    assert signed(tmp_path) == {}
