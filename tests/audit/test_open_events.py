"""Which store of events there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proxy.audit.event_store_postgres import PostgresEvents
from proxy.audit.event_store_sqlite import SqliteEvents
from proxy.audit.open_events import open_events
from proxy.store.sqlite import SqliteDatabase


def test_a_url_means_postgres_and_none_means_a_file(tmp_path: Path) -> None:
    assert isinstance(open_events("postgresql://h/d", tmp_path), PostgresEvents)
    for nothing in (None, ""):
        events = open_events(nothing, tmp_path)
        assert isinstance(events, SqliteEvents)
        assert isinstance(events.database, SqliteDatabase)
        assert events.database.path == tmp_path / "store" / "interlock.db"
    assert list(tmp_path.iterdir()) == []


async def test_a_store_without_a_thread_is_used_in_the_thread_of_its_caller(tmp_path: Path) -> None:
    events = open_events(None, tmp_path, in_thread=False)
    pending = events.last(1)
    # One step ends it; with a thread of its own there would be something to wait for.
    with pytest.raises(StopIteration):
        pending.send(None)  # type: ignore[attr-defined]
    await events.close()


def test_without_postgres_its_driver_is_not_loaded() -> None:
    program = "import sys, proxy.audit.open_events; sys.exit('asyncpg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
