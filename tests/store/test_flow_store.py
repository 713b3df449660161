"""What a store of marks promises, on SQLite and on Postgres alike."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.core.flows import Cleared, Mark
from proxy.errors import StoreUnavailableError
from proxy.store import flow_store
from proxy.store.flow_store import FlowMarks, live_marks
from proxy.store.open_store import open_database
from tests.support.timeouts import PATIENCE

NOW = 1_763_000_000.25


def mark(call_id: str = "c1", **changes: Any) -> Mark:
    plain = Mark(
        agent="bot \0",
        call_id=call_id,
        server="wiki.example",
        tool="read \0",
        labels=("private", "untrusted"),
        at=NOW,
        expires_at=NOW + 60,
        session="s",
        trace=None,
        shingles=b"12345678" * 3,
        values=b"abcdefgh" * 2,
    )
    return dataclasses.replace(plain, **changes)


@pytest.fixture
async def marks(where: tuple[str | None, Path]) -> AsyncIterator[FlowMarks]:
    database = open_database(*where, timeout=PATIENCE)
    yield FlowMarks(database)
    await database.close()


async def test_what_is_added_is_read_as_it_was_and_once(marks: FlowMarks) -> None:
    await marks.add([mark(), mark("c2", tool=None, session=None, trace="t", complete=False)])
    first, second = (await marks.read("bot \0", 0, NOW)).entries
    assert first == mark(number=1)
    assert second == mark("c2", tool=None, session=None, trace="t", complete=False, number=2)
    assert (await marks.read("bot \0", 2, NOW)).entries == []
    await marks.add([mark("c3")])
    (third,) = (await marks.read("bot \0", 2, NOW)).entries
    assert third.number == 3
    assert (await marks.read("another", 0, NOW)).entries == []


async def test_what_has_expired_is_not_read_and_goes(marks: FlowMarks) -> None:
    await marks.add([mark(), mark("late", expires_at=NOW + 90)])
    assert [entry.number for entry in (await marks.read("bot \0", 0, NOW + 60)).entries] == [2]
    assert await marks.sweep(NOW + 60) == 1
    assert await marks.agents(NOW + 60) == ["bot \0"]
    assert await marks.sweep(NOW + 90) == 1
    assert await marks.agents(NOW) == []
    await marks.add([mark("after")])
    # Numbers go on: a worker that has read to number 2 must see it.
    assert [entry.number for entry in (await marks.read("bot \0", 2, NOW)).entries] == [3]


async def test_numbers_appear_in_their_order_whoever_adds(where: tuple[str | None, Path]) -> None:
    """A worker that has seen a number has seen every lower one, or it would never see that mark."""
    databases = [open_database(*where, timeout=PATIENCE) for _ in range(3)]
    stores = [FlowMarks(database) for database in databases]
    seen: list[int] = []
    done = asyncio.Event()

    async def follow() -> None:
        cursor = 0
        while not done.is_set() or cursor < 30:
            entries = (await stores[0].read("bot \0", cursor, NOW)).entries
            seen.extend(entry.number for entry in entries)
            cursor = max([cursor, *seen[-1:]])
            await asyncio.sleep(0)

    async def write(store: FlowMarks) -> None:
        for _ in range(10):
            await store.add([mark()])

    async with asyncio.TaskGroup() as group:
        group.create_task(follow())
        async with asyncio.TaskGroup() as writers:
            for store in stores:
                writers.create_task(write(store))
        done.set()
    assert seen == list(range(1, 31))
    for database in databases:
        await database.close()


async def test_a_person_clears_one_label_or_all(marks: FlowMarks) -> None:
    await marks.add([mark(), mark("c2", labels=("secret",), expires_at=NOW + 99)])
    assert await marks.clear("bot \0", "secret", "olga", NOW) == 1
    entries = (await marks.read("bot \0", 0, NOW)).entries
    assert entries[-1] == Cleared(3, "secret")
    assert [left.call_id for left in live_marks(entries)] == ["c1"]
    assert await marks.clear("bot \0", "secret", "olga", NOW) == 0
    assert await marks.clear("bot \0", None, "olga", NOW) == 1
    assert live_marks((await marks.read("bot \0", 0, NOW)).entries) == []
    await marks.add([mark("new")])
    assert [left.call_id for left in live_marks((await marks.read("bot \0", 0, NOW)).entries)] == ["new"]


async def test_a_clearing_is_seen_as_long_as_what_it_clears(marks: FlowMarks) -> None:
    await marks.add([mark(expires_at=NOW + 500)])
    await marks.clear("bot \0", None, "olga", NOW)
    assert live_marks((await marks.read("bot \0", 0, NOW + 499)).entries) == []
    await marks.sweep(NOW + 499)
    assert live_marks((await marks.read("bot \0", 0, NOW + 499)).entries) == []


async def test_the_window_is_replaced_and_expires(marks: FlowMarks) -> None:
    assert (await marks.read("bot", 1, NOW)).window is None
    await marks.put_window("bot", b"one\0", NOW + 10)
    await marks.put_window("bot", b"two\0", NOW + 10)
    assert (await marks.read("bot", 1, NOW)).window == b"two\0"
    assert (await marks.read("bot", 1, NOW + 10)).window is None
    await marks.sweep(NOW + 10)


async def test_the_oldest_of_very_many_keep_their_labels_alone(
    marks: FlowMarks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_store, "MAX_WITH_PRINTS", 5)
    await marks.add([mark(str(number)) for number in range(64)])
    entries = (await marks.read("bot \0", 0, NOW)).entries
    bare = [entry for entry in entries if isinstance(entry, Mark) and not entry.shingles]
    assert len(bare) == 59
    assert all(not entry.complete and entry.labels == ("private", "untrusted") for entry in bare)


async def test_a_store_that_is_closed_raises(where: tuple[str | None, Path]) -> None:
    database = open_database(*where)
    marks = FlowMarks(database)
    await database.close()
    with pytest.raises(StoreUnavailableError):
        await marks.read("bot", 0, NOW)
    with pytest.raises(StoreUnavailableError):
        await marks.add([mark()])
