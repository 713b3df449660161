"""The contract of a database, held by SQLite and Postgres alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.errors import SchemaError, StoreRefusedError, StoreUnavailableError
from proxy.store.database import Database, Rollback, Transaction
from proxy.store.open_store import open_database
from tests.support.timeouts import PATIENCE

INSERT = "INSERT INTO tool_prompt_baselines VALUES ($1, 't', 'h', $2, '')"
COUNT = "SELECT count(*) FROM tool_prompt_baselines"


@pytest.fixture
async def database(where: tuple[str | None, Path]) -> AsyncIterator[Database]:
    opened = open_database(*where)
    opened._timeout = PATIENCE  # type: ignore[attr-defined]
    yield opened
    await opened.close()


async def count(database: Database) -> int:
    return int((await database.fetch(COUNT))[0][0])


async def test_a_statement_gives_its_rows_with_values_by_number(database: Database) -> None:
    rows = await database.fetch("SELECT CAST($2 AS text), CAST($1 AS int), CAST($2 AS text)", 1, "é")
    assert [tuple(row) for row in rows] == [("é", 1, "é")]


async def test_what_is_executed_is_there_for_others(database: Database, where: tuple[str | None, Path]) -> None:
    rows = await database.execute(f"{INSERT} RETURNING server", "s", 1.0)
    assert [tuple(row) for row in rows] == [("s",)]
    other = open_database(*where)
    assert await count(other) == 1
    await other.close()


async def test_a_transaction_is_whole_and_gives_its_result(database: Database) -> None:
    async def two(connection: Transaction) -> str:
        assert not connection.retried
        await connection.fetch(INSERT, "a", 1.0)
        await connection.fetch(INSERT, "b", 1.0)
        return "done"

    assert await database.transaction(two) == "done"
    assert await count(database) == 2


async def test_a_rollback_changes_nothing_and_gives_its_result(database: Database) -> None:
    async def undone(connection: Transaction) -> str:
        await connection.fetch(INSERT, "a", 1.0)
        raise Rollback("undone")

    assert await database.transaction(undone) == "undone"
    assert await count(database) == 0


async def test_an_error_leaves_nothing_half_done_and_the_next_statement_runs(database: Database) -> None:
    async def half(connection: Transaction) -> None:
        await connection.fetch(INSERT, "a", 1.0)
        await connection.fetch("SELECT nonsense")

    with pytest.raises(StoreUnavailableError, match="nonsense"):
        await database.transaction(half)
    assert await count(database) == 0


async def test_what_work_raises_is_an_unavailable_store_unless_it_is_ours(database: Database) -> None:
    async def broken(_: Transaction) -> None:
        raise ZeroDivisionError("by zero")

    async def ours(_: Transaction) -> None:
        raise SchemaError("ours")

    with pytest.raises(StoreUnavailableError, match="by zero"):
        await database.transaction(broken)
    with pytest.raises(SchemaError, match="ours"):
        await database.transaction(ours)


async def test_data_that_the_database_does_not_take_is_refused(database: Database) -> None:
    await database.execute(INSERT, "a", 1.0)
    with pytest.raises(StoreRefusedError):
        await database.execute(INSERT, "a", 1.0)


async def test_one_read_transaction_may_ask_several_times(database: Database) -> None:
    async def ask(connection: Transaction) -> list[int]:
        return [int((await connection.fetch(COUNT))[0][0]) for _ in range(3)]

    assert await database.transaction(ask, read_only=True) == [0, 0, 0]


async def test_of_many_at_once_each_gets_its_own_result(database: Database) -> None:
    rows = await asyncio.gather(*(database.execute(f"{INSERT} RETURNING server", str(n), 1.0) for n in range(20)))
    assert [row[0][0] for row in rows] == [str(n) for n in range(20)]
    assert await count(database) == 20


async def test_one_that_is_closed_says_so(database: Database) -> None:
    await database.check()
    await database.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await database.fetch("SELECT 1")
