"""Events of the store and of the logs, each once, in the order of their times."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.audit import reading
from proxy.audit.local_log_files import read_logs
from proxy.audit.reading import events_since, last_events
from proxy.store.event_store import Events
from tests.support.trail_fixture import START, move, write


async def ids(store: Events | None, state_dir: Path, since: float = 0) -> list[str]:
    return [event["event_id"] for event in await _all(store, state_dir, since)]


async def _all(store: Events | None, state_dir: Path, since: float) -> list[dict[str, object]]:
    return [event async for event in events_since(store, state_dir, since)]


@pytest.fixture
async def both(tmp_path: Path, events: Events) -> Events:
    """Events 1, 3, 5, 7 in the store, and 2, 4, 6, 8 in the log."""
    write(tmp_path, [1, 3, 5, 7])
    await move(tmp_path, events)
    write(tmp_path, [2, 4, 6, 8])
    return events


async def test_both_are_read_as_one(tmp_path: Path, both: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await ids(both, tmp_path) == [f"e0000{number}" for number in range(1, 9)]
    monkeypatch.setattr(reading, "PAGE", 2)
    assert await ids(both, tmp_path) == [f"e0000{number}" for number in range(1, 9)]
    assert await ids(both, tmp_path, START + 5) == ["e00005", "e00006", "e00007", "e00008"]
    assert await ids(None, tmp_path) == ["e00002", "e00004", "e00006", "e00008"]


async def test_the_last_ones_are_of_both(tmp_path: Path, both: Events) -> None:
    assert [event["event_id"] for event in await last_events(both, tmp_path, 3)] == ["e00006", "e00007", "e00008"]
    assert [event["event_id"] for event in await last_events(None, tmp_path, 3)] == ["e00004", "e00006", "e00008"]
    assert len(await last_events(both, tmp_path, 100)) == 8


async def test_an_event_that_is_in_both_is_given_once(
    tmp_path: Path, both: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is while a batch is moved: the store has it, the log has it still."""
    waiting = list(read_logs(tmp_path))
    await move(tmp_path, both)
    monkeypatch.setattr(reading, "read_logs", lambda _folder, last=None: iter(waiting))
    assert await ids(both, tmp_path) == [f"e0000{number}" for number in range(1, 9)]
    assert len(await last_events(both, tmp_path, 100)) == 8
