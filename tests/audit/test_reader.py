"""The one reader of the audit trail: the store and the logs that fill it, each event once, whatever moves meanwhile."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from proxy.audit import local_log_sql, reader
from proxy.audit.event_store import Events
from proxy.audit.event_sums import add_stats
from proxy.audit.local_log import LOG_FILE
from proxy.audit.local_log_files import read_logs
from proxy.audit.reader import AuditReader, Follower, open_audit
from proxy.core.event import DayStats, DenialStats, Filter, LogEntry, SecretStats, Stats, ToolStats
from proxy.errors import StoreUnavailableError
from tests.support.audit_fixture import TRAIL, World
from tests.support.trail_fixture import START, move, write

Where = tuple[str | None, Path]
AHEAD = 2_000_000_000


async def asked(audit: AuditReader) -> Any:
    everything = Filter()
    return (
        await audit.calls(everything),
        [entry async for entry in audit.entries(everything)],
        await audit.count(everything),
        await audit.stats(everything),
        await audit.find("call-0001"),
    )


async def test_what_is_shipped_meanwhile_is_neither_missing_nor_doubled(where: Where) -> None:
    world = World(where[1], where[0])
    world.record(*TRAIL[:3])
    world.ship()
    world.record(*TRAIL[3:])
    async with open_audit(world.database_url, world.state_dir) as audit:
        before = await asked(audit)
        world.ship()
        assert await asked(audit) == before
    async with open_audit(world.database_url, world.state_dir) as audit:
        assert await asked(audit) == before
    assert before[2] == len(TRAIL)


async def test_what_is_in_the_store_and_not_yet_discarded_is_there_once(where: Where) -> None:
    world = World(where[1], where[0])
    world.record(*TRAIL)
    connection = local_log_sql.connect(world.state_dir / LOG_FILE, 1 << 30)
    state = local_log_sql.read_state(connection)
    assert state is not None
    world.write(local_log_sql.page(connection, state.head.writer, 0, 3))
    connection.close()
    async with open_audit(world.database_url, world.state_dir) as audit:
        assert await audit.count(Filter()) == (await audit.stats(Filter())).events == len(TRAIL)
        assert len(await audit.calls(Filter())) == 3
        assert len([entry async for entry in audit.entries(Filter())]) == len(TRAIL)


async def test_logs_are_enough_and_nothing_is_made_beside_them(tmp_path: Path) -> None:
    world = World(tmp_path, None)
    world.record(*TRAIL)
    async with open_audit(None, tmp_path) as audit:
        assert await audit.count(Filter()) == len(TRAIL)
        assert audit.store is None
    assert not (tmp_path / "store").exists()


async def test_nothing_at_all_is_nothing(tmp_path: Path) -> None:
    async with open_audit(None, tmp_path) as audit:
        assert (await audit.count(Filter()), await audit.calls(Filter()), await audit.find("x")) == (0, [], [])
        assert [entry async for entry in audit.entries(Filter())] == []
        assert (await audit.stats(Filter())).events == 0


@contextlib.asynccontextmanager
async def reading(store: Events | None, state_dir: Path) -> AsyncIterator[AuditReader]:
    """Read a store that is open already, if any, and the logs."""
    async with contextlib.AsyncExitStack() as closing:
        yield AuditReader(state_dir, lambda: store, closing)


async def ids(store: Events | None, state_dir: Path, since: float = 0) -> list[str]:
    async with reading(store, state_dir) as audit:
        return [json.loads(entry.body)["event_id"] async for entry in audit.entries(Filter(since=since))]


async def last(store: Events | None, state_dir: Path, number: int) -> list[str]:
    async with reading(store, state_dir) as audit:
        return names(await audit.last(number))


def names(found: list[dict[str, Any]]) -> list[str]:
    return [one["event_id"] for one in found]


@pytest.fixture
async def both(tmp_path: Path, events: Events) -> Events:
    """Events 1, 3, 5, 7 in the store, and 2, 4, 6, 8 in the log."""
    write(tmp_path, [1, 3, 5, 7])
    await move(tmp_path, events)
    write(tmp_path, [2, 4, 6, 8])
    return events


async def test_both_are_read_as_one(tmp_path: Path, both: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await ids(both, tmp_path) == [f"e0000{number}" for number in range(1, 9)]
    monkeypatch.setattr(reader, "LIMIT", 20)
    assert await ids(both, tmp_path) == [f"e0000{number}" for number in range(1, 9)]
    assert await ids(both, tmp_path, START + 5) == ["e00005", "e00006", "e00007", "e00008"]
    assert await ids(None, tmp_path) == ["e00002", "e00004", "e00006", "e00008"]


async def test_the_last_ones_are_of_both(tmp_path: Path, both: Events) -> None:
    assert await last(both, tmp_path, 3) == ["e00006", "e00007", "e00008"]
    assert await last(None, tmp_path, 3) == ["e00004", "e00006", "e00008"]
    assert len(await last(both, tmp_path, 100)) == 8


async def test_an_event_that_is_in_both_is_given_once(
    tmp_path: Path, both: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is while a batch is moved: the store has it, the log has it still."""
    waiting = list(read_logs(tmp_path))
    async with reading(both, tmp_path) as audit:
        assert await audit.count(Filter()) == 8
        await move(tmp_path, both)
        assert len([entry async for entry in audit.entries(Filter())]) == await audit.count(Filter()) == 8
    monkeypatch.setattr(reader, "read_logs", lambda _folder, last=None: iter(waiting))
    assert len(await last(both, tmp_path, 100)) == 8


class Flaky:
    """A store that does not answer while it is `down`."""

    def __init__(self, store: Events) -> None:
        self.store, self.down = store, True

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise StoreUnavailableError("down")
        return getattr(self.store, name)


async def test_events_come_once_whatever_the_clock_says(tmp_path: Path, events: Events) -> None:
    write(tmp_path, [1, AHEAD])
    async with reading(events, tmp_path) as audit:
        follower = Follower(audit)
        await follower.begin()
        assert await follower.look() == []
        write(tmp_path, [2])
        assert names(await follower.look()) == ["e00002"]
        write(tmp_path, [3])
        await move(tmp_path, events)  # it was in the log for less than a look
        write(tmp_path, [-90_000])
        assert names(await follower.look()) == ["e-90000", "e00003"]
        assert await follower.look() == []


async def test_an_outage_hides_nothing(tmp_path: Path, events: Events) -> None:
    write(tmp_path, [1])
    store = Flaky(events)
    async with reading(store, tmp_path) as audit:  # type: ignore[arg-type]
        follower = Follower(audit)
        await follower.begin()
        write(tmp_path, [2])
        await move(tmp_path, events)
        write(tmp_path, [3])
        assert names(await follower.look()) == ["e00003"]
        write(tmp_path, [4])
        store.down = False
        assert names(await follower.look()) == ["e00002", "e00004"]


async def test_what_other_machines_ship_is_seen(tmp_path: Path, events: Events) -> None:
    def entry(name: str, age: float) -> LogEntry:
        body = {"event_id": name, "kind": "decided", "time": time.time() - age}
        return LogEntry(json.dumps(body), "elsewhere", 1, "0" * 64)

    await events.write([entry("before", 5)])
    async with reading(events, tmp_path) as audit:
        follower = Follower(audit)
        await follower.begin()
        await events.write([entry("late", 20), entry("now", 0)])
        assert names(await follower.look()) == ["late", "now"]
        assert await follower.look() == []


async def test_a_store_that_is_made_meanwhile_is_followed(tmp_path: Path) -> None:
    write(tmp_path, [1])
    async with open_audit(None, tmp_path) as audit:
        follower = Follower(audit)
        await follower.begin()
        assert audit.store is None
        write(tmp_path, [2])
        World(tmp_path, None).ship()
        write(tmp_path, [3])
        assert names(await follower.look()) == ["e00002", "e00003"]
        assert audit.store is not None
        assert await follower.look() == []


async def test_a_damaged_event_is_passed_over(tmp_path: Path) -> None:
    async with reading(None, tmp_path) as audit:
        follower = Follower(audit)
        await follower.begin()
        write(tmp_path, [1, 2, 3])
        connection = apsw.Connection(str(tmp_path / LOG_FILE))
        connection.execute("UPDATE events SET body = 'x' WHERE seq = 2")
        connection.close()
        assert names(await follower.look()) == ["e00001", "e00003"]


ONE = Stats(
    events=3,
    first=10.0,
    last=20.0,
    tools=[ToolStats("s", "a", 3, 1, 1, 2, 10.0, 15.0), ToolStats("s", "b", 1, 0, 0, 0, None, None)],
    denials=[DenialStats("r", "x", 2)],
    secrets=[SecretStats("s", "a", "d", 1)],
    days=[DayStats("2026-01-02", 3, 1)],
)
OTHER = Stats(
    events=4,
    first=5.0,
    last=15.0,
    tools=[ToolStats("s", "b", 4, 0, 0, 1, 7.0, 7.0), ToolStats("s", "a", 1, 0, 0, 2, 40.0, 50.0)],
    denials=[DenialStats("r", None, 3), DenialStats("r", "x", 2)],
    secrets=[SecretStats("s", "a", "e", 2)],
    days=[DayStats("2026-01-01", 1, 0), DayStats("2026-01-02", 1, 1)],
)
NONE = Stats(events=0, first=None, last=None, tools=[], denials=[], secrets=[], days=[])


def test_everything_is_summed_up_the_most_first() -> None:
    assert add_stats([ONE, OTHER]) == Stats(
        events=7,
        first=5.0,
        last=20.0,
        tools=[ToolStats("s", "b", 5, 0, 0, 1, 7.0, 7.0), ToolStats("s", "a", 4, 1, 1, 4, 25.0, 50.0)],
        denials=[DenialStats("r", "x", 4), DenialStats("r", None, 3)],
        secrets=[SecretStats("s", "a", "e", 2), SecretStats("s", "a", "d", 1)],
        days=[DayStats("2026-01-01", 1, 0), DayStats("2026-01-02", 4, 2)],
    )


def test_the_order_is_not_that_of_a_database() -> None:
    names = ["B", "a", None, "Z"]
    rows = replace(NONE, denials=[DenialStats("r", name, 2) for name in names])
    assert [row.rule for row in add_stats([rows]).denials] == ["B", "Z", "a", None]


def test_nothing_adds_nothing() -> None:
    assert add_stats([]) == NONE
    assert add_stats([ONE]) == ONE
    assert add_stats([NONE, ONE]) == add_stats([ONE, NONE]) == ONE
    assert add_stats([NONE, NONE]) == NONE
