"""Commands read the store and the logs as one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from proxy.commands.audit.trail import events_since, follow, last_events
from proxy.config import Settings
from proxy.errors import StoreUnavailableError
from proxy.store.open_store import open_events
from tests.commands.conftest import Run
from tests.support.trail_fixture import START, move, write

DOWN = "postgresql://127.0.0.1:1/none"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Two events in the store, two in the log."""
    folder = tmp_path / "state"

    async def go() -> None:
        write(folder, [1, 2])
        store = open_events(None, folder)
        await move(folder, store)
        await store.close()
        write(folder, [3, 4])

    asyncio.run(go())
    return folder


def test_tail_prints_both(run: Run, state: Path) -> None:
    rows = [json.loads(line) for line in run("audit", "tail", "--json").stdout.splitlines()]
    assert [row["event_id"] for row in rows] == ["e00001", "e00002", "e00003", "e00004"]


def test_tail_shows_what_it_can_where_the_store_is_down(run: Run, state: Path) -> None:
    done = run("audit", "tail", "--json", "--database-url", DOWN)
    assert done.returncode == 0
    assert "Only what is still in the local logs is shown" in done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_events_from_a_time_on_are_given_in_order(state: Path) -> None:
    settings = Settings(state_dir=state)
    assert [event["event_id"] for event in events_since(settings, START + 2)] == ["e00002", "e00003", "e00004"]
    assert [event["event_id"] for event in last_events(settings, 1)] == ["e00004"]


def test_a_replay_does_not_go_by_a_part_of_the_trail(state: Path) -> None:
    down = Settings(state_dir=state, database_url=DOWN)  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailableError):
        list(events_since(down, 0))


def test_following_gives_each_event_once_wherever_it_is(state: Path) -> None:
    batches = follow(Settings(state_dir=state), 2, pause=0.01)
    assert [event["event_id"] for event in next(batches)] == ["e00003", "e00004"]
    write(state, [5])
    assert [event["event_id"] for event in next(batches)] == ["e00005"]

    async def ship() -> None:
        store = open_events(None, state)
        await move(state, store)
        await store.close()

    asyncio.run(ship())
    write(state, [6, 7])
    assert [event["event_id"] for event in next(batches)] == ["e00006", "e00007"]
