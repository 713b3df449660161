"""What a screen is told of: each event once, a bounded number at a time, from logs and store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.audit import live_tail
from proxy.audit.event_store import Events
from proxy.audit.live_tail import LiveTail
from proxy.audit.local_log import LOG_FILE
from proxy.audit.open_events import open_events
from proxy.core.event import LogEntry
from proxy.errors import StoreUnavailableError
from tests.support.audit_fixture import NOW, World, event


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, None)


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    opened = open_events(None, tmp_path)
    yield opened
    await opened.close()


def tail(world: World, store: Events | None, **options: Any) -> LiveTail:
    return LiveTail(world.state_dir, lambda: store, shared=False, **options)


def ids(news: live_tail.News) -> list[str]:
    return [event["event_id"] for event in news.events]


async def test_what_was_there_before_the_first_look_is_no_news(world: World, store: Events) -> None:
    world.record(event(1))
    made = tail(world, store)
    assert ids(await made.look()) == []
    world.record(event(2), event(3, "completed"))
    assert ids(await made.look()) == ["event-0002", "event-0003"]
    assert ids(await made.look()) == []


async def test_events_that_were_shipped_in_between_come_from_the_store(world: World, store: Events) -> None:
    made = tail(world, store)
    world.record(event(1))
    await made.look()
    world.record(event(2), event(3))
    world.ship()
    world.record(event(4))
    assert ids(await made.look()) == ["event-0002", "event-0003", "event-0004"]


async def test_a_log_that_is_new_is_shown_from_its_beginning(world: World, store: Events) -> None:
    made = tail(world, store)
    await made.look()
    world.record(event(1))
    assert ids(await made.look()) == ["event-0001"]


async def test_a_look_is_bounded_and_says_what_it_left_out(
    world: World, store: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_tail, "MAX_EVENTS", 3)
    made = tail(world, store)
    await made.look()
    world.record(*(event(number) for number in range(1, 11)))
    news = await made.look()
    assert ids(news) == ["event-0008", "event-0009", "event-0010"]
    assert news.skipped == 7


class Gone(Events):
    """A store that does not answer."""

    def __init__(self) -> None: ...

    async def of_writer(self, *_: Any) -> Any:
        raise StoreUnavailableError("gone")

    newest = of_writer
    prepare = prune = _insert = of_writer
    _read = _like = _has_argument = _has_claim = lambda *_: None  # type: ignore[assignment]


async def test_a_store_that_is_gone_hides_only_what_is_in_it(world: World) -> None:
    made = tail(world, Gone())
    world.record(event(1))
    await made.look()
    world.record(event(2))
    world.ship()
    world.record(event(3))
    news = await made.look()
    assert ids(news) == ["event-0003"]
    assert news.skipped == 1


async def test_a_damaged_log_hides_no_other(world: World, store: Events) -> None:
    made = tail(world, store)
    world.record(event(1))
    await made.look()
    (world.state_dir / LOG_FILE).with_name("run-1.db").write_bytes(b"garbage " * 500)
    world.record(event(2))
    assert ids(await made.look()) == ["event-0002"]


def body(name: str, time: float) -> str:
    return f'{{"event_id": "{name}", "kind": "decided", "time": {time}}}'


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = request.getfixturevalue("database_url") if request.param == "postgres" else None
    return World(tmp_path, url)


async def test_other_machines_are_seen_by_the_store_each_event_once(shared: World) -> None:
    store = open_events(shared.database_url, shared.state_dir)
    shared.write([LogEntry(body("old", NOW), "far", 1, "")])
    made = LiveTail(shared.state_dir, lambda: store, shared=True, clock=lambda: NOW + 1)
    try:
        shared.record(event(1))
        assert ids(await made.look()) == []
        shared.write([LogEntry(body("new", NOW + 0.5), "far", 2, ""), LogEntry("no json", "far", 3, "")])
        # Of this machine, in the store as well: the log is followed, and nothing comes twice.
        shared.record(event(2))
        shared.ship()
        assert ids(await made.look()) == ["new", "event-0002"]
        assert ids(await made.look()) == []
    finally:
        await store.close()
