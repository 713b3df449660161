from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.errors import StoreUnavailableError
from proxy.metrics.counters import STORE, STORE_ERRORS, Counters
from proxy.metrics.timed_database import TimedDatabase
from proxy.store.open_store import open_database


def counted(counters: Counters) -> dict[str, float]:
    return {family.name: sum(numbers[:-1]) or numbers[0] for family, _, numbers in counters.sums() if any(numbers)}


async def test_what_a_database_does_is_timed_and_passed_on(tmp_path: Path) -> None:
    counters = Counters(1)
    database = TimedDatabase(open_database(None, tmp_path), counters.row(1))
    assert await database.fetch("SELECT $1", 7) == [(7,)]
    assert await database.execute("SELECT 1") == [(1,)]

    async def work(connection: Any) -> Any:
        return await connection.fetch("SELECT 2")

    assert await database.transaction(work, read_only=True) == [(2,)]
    await database.check()
    assert counted(counters) == {STORE: 3}
    assert database.remote is False
    await database.close()


async def test_a_store_that_cannot_be_used_is_counted(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    counters = Counters(1)
    database = TimedDatabase(open_database(None, tmp_path, timeout=0.2), counters.row(1))
    with pytest.raises(StoreUnavailableError):
        await database.fetch("SELECT 1")
    assert counted(counters)[STORE_ERRORS] == 1
    await database.close()
