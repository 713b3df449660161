"""Events in the embedded store: what only SQLite does."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.audit import event_store_sqlite as room
from proxy.audit.event_store_sqlite import SqliteEvents
from proxy.audit.open_events import open_events
from proxy.core.event import Filter, Head, LogEntry, Written
from proxy.core.event_columns import COLUMNS, columns
from proxy.store.sqlite import STORE_FILE, SqliteDatabase
from tests.audit.test_event_store import NOW, decided


async def test_pruning_gives_the_room_back(tmp_path: Path) -> None:
    events = open_events(None, tmp_path)
    await events.write([decided(number, arguments={"x": "y" * 5000}) for number in range(500)])
    await events.prune(NOW)
    await events.close()
    full = (tmp_path / STORE_FILE).stat().st_size
    events = open_events(None, tmp_path)
    assert await events.prune(NOW + 1000, [Head("log-1", 999, "")]) == 500
    await events.close()
    assert (tmp_path / STORE_FILE).stat().st_size < full / 4


async def test_what_only_the_database_refuses_is_found_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = [None] * len(COLUMNS)
    monkeypatch.setattr(room, "columns", lambda body, _: nothing if body in "23" else columns(decided(int(body)).body))
    events = SqliteEvents(SqliteDatabase(tmp_path / STORE_FILE))
    written = await events.write([LogEntry(str(number)) for number in range(8)])
    assert (written.kept, sorted(written.poison)) == (6, [2, 3])
    assert "NOT NULL" in written.poison[2]
    monkeypatch.undo()
    assert await events.write([decided(9)]) == Written(1)
    assert (await events.stats(Filter())).events == 7
    await events.close()
