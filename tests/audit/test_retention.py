"""Letting go of old events: verified and signed first, deleted then. test_verify has what comes of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from proxy.audit.event_store import Events
from proxy.audit.retention import DAY, Pruned, prune
from proxy.core.event import Filter
from tests.support.trail_fixture import START, execute, move, sign, signed, signer, verified, write


async def numbers(events: Events) -> list[int | None]:
    return sorted([entry.seq for _, entry in await events.events(Filter())], key=lambda seq: seq or 0)


async def test_where_each_chain_begins_is_signed(tmp_path: Path, events: Events) -> None:
    head = write(tmp_path, range(1, 11))
    await move(tmp_path, events)
    assert await prune(events, START + 4, signer(tmp_path)) == Pruned(3, [])
    assert signed(tmp_path)[head.writer].pruned == 3
    assert await prune(events, START + 4, signer(tmp_path)) == Pruned(0, [])


async def test_nothing_old_is_nothing_signed(tmp_path: Path, events: Events) -> None:
    assert await prune(events, START, signer(tmp_path)) == Pruned(0, [])
    assert signed(tmp_path) == {}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE events SET ts = {} WHERE seq <= 5", "altered"),  # made old, to be deleted and signed for
        ("DELETE FROM events WHERE seq = 2", "missing"),
        ("UPDATE events SET body = replace(body, 'deny', 'none') WHERE seq = 1", "altered"),
    ],
)
async def test_what_is_not_what_it_was_stays(change: str, what: str, tmp_path: Path, events: Events) -> None:
    head = write(tmp_path, range(1, 11))
    sign(tmp_path)
    await move(tmp_path, events)
    moment = "to_timestamp(1)" if type(events).__name__ == "PostgresEvents" else "1"
    await execute(events, change.format(moment))
    left = await numbers(events)
    done = await prune(events, START + 4, signer(tmp_path))
    assert (done.gone, [problem.what for problem in done.problems]) == (0, [what])
    assert await numbers(events) == left
    assert signed(tmp_path)[head.writer].pruned == 0
    assert (await prune(events, START + 4, signer(tmp_path), signed={}, force=True)).gone > 0


async def test_an_event_stays_as_long_as_one_before_it(tmp_path: Path, events: Events) -> None:
    """The clock went back for a while: what was written then is not as old as it says."""
    write(tmp_path, [10, 11, -90_000, 1, 12, 13])
    await move(tmp_path, events)
    assert (await prune(events, START + 5, signer(tmp_path))).gone == 0
    assert (await prune(events, START + 12.5, signer(tmp_path))).gone == 5
    assert await numbers(events) == [6]
    assert (await verified(tmp_path, events)).problems == []


async def test_a_clock_that_was_ahead_holds_nothing_up(tmp_path: Path, events: Events) -> None:
    ahead = int(time.time() - START + 40 * 365 * DAY)
    write(tmp_path, [1, 2, ahead, 3, 12])
    write(tmp_path, [ahead + 1])
    await move(tmp_path, events)
    assert (await prune(events, START + 10, signer(tmp_path))).gone == 4
    assert (await prune(events, START + 20, signer(tmp_path))).gone == 1
    assert await numbers(events) == [6], "it may have happened just now"


async def test_a_clock_that_jumped_ahead_empties_no_store_at_once(tmp_path: Path, events: Events) -> None:
    write(tmp_path, [0, int(DAY / 2), int(DAY * 3 / 2), int(DAY * 2), int(DAY * 9)])
    await move(tmp_path, events)
    gone = [(await prune(events, START + 1000 * DAY, signer(tmp_path), step=DAY)).gone for _ in range(4)]
    assert gone == [2, 2, 1, 0]
    assert (await verified(tmp_path, events)).problems == []
