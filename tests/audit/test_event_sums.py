"""Sums by the hour: whatever comes, in whatever order, they are what reading every event gives."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.audit.event_store import Events
from proxy.audit.event_store_postgres import PostgresEvents
from proxy.audit.event_sums import HOUR, by_hours, edges
from proxy.audit.open_events import open_events
from proxy.core.event import Filter, Head, LogEntry, Stats
from proxy.core.model import Finding
from tests.audit.test_event_store import completed, decided, event

NOW = 1_763_000_000.0


@pytest.fixture
async def store(database_url: str, tmp_path: Path) -> AsyncIterator[PostgresEvents]:
    store = open_events(database_url, tmp_path)
    assert isinstance(store, PostgresEvents)
    yield store
    await store.close()


def some_events(number: int) -> list[LogEntry]:
    """Return events of two days with whatever reports sum up, as two writers' chains."""
    chance = random.Random(21)
    found = []
    for index in range(1, number + 1):
        tool, when = f"tool_{chance.randrange(5)}", NOW - chance.randrange(2 * 86_400)
        kind = chance.randrange(5)
        found_two = Finding("aws", "text", "f1", record_only=chance.random() < 0.5), Finding("card", "text", "f2")
        more: dict[str, Any] = {"redactions": found_two} if chance.random() < 0.3 else {}
        if kind == 0:
            one = decided(index, time=when, tool=tool, decision="deny", reason="policy_denied", rule=f"r{index % 3}")
        elif kind < 3:
            one = decided(index, time=when, tool=tool, agent=f"a{index % 4}", **more)
        elif kind == 3:
            timed = {"total_ms": float(index % 50)} if index % 7 else {}
            one = completed(index, index, time=when, tool=tool, is_error=index % 4 == 0, **timed)
        else:
            one = event(index, "approved", time=when, tool=tool)
        found.append(one._replace(writer=f"log-{index % 2}", seq=index, chain="c"))
    return found


def figures(stats: Stats) -> dict[str, Any]:
    """Return what must be equal; times are means, which differ in their last digits."""
    tools = [
        (row.server, row.tool, row.calls, row.denied, row.errors, row.completed, row.max_ms, round(row.mean_ms or 0, 6))
        for row in stats.tools
    ]
    return {
        "span": (stats.events, stats.first, stats.last),
        "tools": sorted(tools, key=str),
        "denials": sorted(stats.denials, key=str),
        "secrets": sorted(stats.secrets, key=str),
        "days": list(stats.days),
    }


FILTERS = [
    Filter(),
    Filter(since=NOW - 86_400.5),
    Filter(since=NOW - 30 * HOUR, until=NOW - 5.25 * HOUR),
    Filter(since=NOW - 900, until=NOW - 300),
    Filter(until=NOW - HOUR),
    Filter(since=NOW - 26 * HOUR, without=(("log-1", 270), ("log-7", 3))),
    Filter(without=(("log-0", 0), ("log-1", 0))),
    Filter(since=NOW + 9 * HOUR),
]


async def check(store: PostgresEvents) -> Stats:
    """Compare every report with one that reads all events; return the report over everything."""
    for where in FILTERS:
        assert figures(await store.stats(where)) == figures(await Events.stats(store, where)), where
    return await store.stats(Filter())


async def test_reports_are_those_of_reading_every_event(store: PostgresEvents) -> None:
    written = some_events(300)
    await store.write(written[100:200])
    await store.write(written[:150])  # half of them were there before, and some are hours late
    await store.write(written[140:])
    assert (await check(store)).events == 300
    await store.sum_up_lately(NOW - 3 * 86_400)
    ((rows,),) = await store.database.fetch("SELECT count(*) FROM event_sums WHERE what = 'all'")
    await store.database.execute("SELECT interlock_sum_counts()")
    assert (await check(store)).events == 300
    await store.write(some_events(301)[-1:])  # late, to an hour that was summed up
    assert (await check(store)).events == 301
    assert rows <= 49 * 2


async def test_what_was_pruned_is_in_no_report(store: PostgresEvents) -> None:
    entries = [decided(number, time=NOW - (60 - number) * HOUR) for number in range(1, 60)]
    await store.write([one._replace(writer="log-9", seq=seq, chain="c") for seq, one in enumerate(entries, 1)])
    assert await store.prune(NOW - 30.5 * HOUR, [Head("log-9", 29, "c")]) == 29
    assert (await check(store)).events == 30
    ((days,),) = await store.database.fetch("SELECT sum(events)::int FROM event_sums WHERE what = 'day_agent'")
    assert days == 30


async def test_a_report_by_agent_reads_the_events(store: PostgresEvents) -> None:
    await store.write(some_events(40))
    where = Filter(agent="a1")
    assert figures(await store.stats(where)) == figures(await Events.stats(store, where))
    assert 0 < (await store.stats(where)).events < 40


def test_only_time_chooses_whole_hours() -> None:
    assert by_hours(Filter(since=1.0, until=2.0, without=(("w", 1),)))
    assert not any(map(by_hours, (Filter(tool="x"), Filter(text="x"), Filter(claims=(("sub", "x"),)))))


def test_what_is_no_whole_hour_is_beside() -> None:
    where = Filter(since=HOUR / 2, until=3.5 * HOUR)
    first, last, beside = edges(where, [2 * HOUR, 9 * HOUR])
    assert (first, last) == (HOUR, 3 * HOUR)
    assert [(one.since, one.until) for one in beside] == [
        (2 * HOUR, 3 * HOUR),
        (HOUR / 2, HOUR),
        (3 * HOUR, 3.5 * HOUR),
    ]
    assert edges(Filter(since=10.0, until=20.0), [])[2] == [Filter(since=10.0, until=20.0)]
