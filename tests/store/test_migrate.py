"""Migrating Postgres: once, whole, from however many places."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from proxy.errors import SchemaError, StoreUnavailableError
from proxy.store import migrate as room
from proxy.store.migrate import Migration, check_schema, migrations, read_migrations
from proxy.store.postgres import connect, migrate, schema_of
from tests.support.postgres import Postgres
from tests.support.timeouts import PATIENCE

COLUMNS = (
    "SELECT table_name, column_name FROM information_schema.columns "
    "WHERE table_schema = 'public' AND table_name <> 'interlock_migrations' AND table_name !~ '^events_'"
)
KNOWN = migrations("postgres")
ONE, TWO = Migration(1, "one", "CREATE TABLE one (a int)"), Migration(2, "two", "CREATE TABLE two (a int)")
BAD = Migration(2, "bad", "CREATE TABLE two (a int); SELECT nonsense")


@pytest.fixture
def empty(postgres: Postgres) -> str:
    return postgres.new_database(migrated=False)


def know(monkeypatch: pytest.MonkeyPatch, *known: Migration) -> None:
    monkeypatch.setattr(room, "migrations", lambda _: known)


def migrate_aside(url: str, ready: Any, results: Any) -> None:
    async def run() -> list[str]:
        ready.wait(PATIENCE)
        return [str(migration) for migration in await migrate(url)]

    results.put(asyncio.run(run()))


async def test_what_is_missing_is_applied_in_order_and_written_down(empty: str) -> None:
    assert (await schema_of(empty)).missing == list(KNOWN)
    assert await migrate(empty) == list(KNOWN)
    schema = await schema_of(empty)
    assert (schema.missing, schema.changed, schema.newer, schema.problem()) == ([], [], [], None)
    assert {applied.checksum for applied in schema.applied.values()} == {known.checksum for known in KNOWN}
    assert all(applied.at > 1_600_000_000 for applied in schema.applied.values())
    assert await migrate(empty) == []


async def test_only_what_is_new_is_applied(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, ONE)
    await migrate(empty)
    know(monkeypatch, ONE, TWO)
    schema = await schema_of(empty)
    assert schema.problem() == "the database lacks migration 0002_two; run `interlock db migrate`"
    assert await migrate(empty) == [TWO]


def test_processes_that_migrate_at_once_do_it_once(empty: str) -> None:
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(4), context.Queue()
    workers = [context.Process(target=migrate_aside, args=(empty, ready, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    told = [results.get(timeout=90) for _ in workers]
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert sorted(told) == [[], [], [], [str(migration) for migration in KNOWN]]


async def test_a_migration_that_fails_leaves_nothing_behind(
    empty: str, monkeypatch: pytest.MonkeyPatch, postgres: Postgres
) -> None:
    know(monkeypatch, ONE, BAD)
    with pytest.raises(StoreUnavailableError, match="nonsense"):
        await migrate(empty)
    assert postgres.psql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", empty) == "0"


async def test_a_changed_migration_is_refused_with_the_way_out(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, ONE, TWO)
    await migrate(empty)
    know(monkeypatch, ONE, BAD, Migration(3, "three", "CREATE TABLE three (a int)"))
    with pytest.raises(SchemaError, match=r"0002_bad was applied here with another text.*a change is a new migration"):
        await migrate(empty)
    connection = await asyncpg.connect(empty)
    with pytest.raises(SchemaError, match="0002_bad"):
        await check_schema(connection)
    assert await connection.fetchval("SELECT to_regclass('three')") is None
    await connection.close()


async def test_a_database_of_a_newer_version_can_be_used(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, ONE, TWO)
    await migrate(empty)
    know(monkeypatch, ONE)
    schema = await schema_of(empty)
    assert [applied.name for applied in schema.newer] == ["two"]
    assert schema.problem() is None
    assert await migrate(empty) == []


async def test_a_lock_that_is_not_let_go_is_told(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "LOCK_SECONDS", 0.2)
    other = await asyncpg.connect(empty)
    await other.execute("SELECT pg_advisory_lock($1)", room.LOCK)
    with pytest.raises(StoreUnavailableError, match="another migration or a long transaction"):
        await migrate(empty)
    await other.close()
    assert await migrate(empty)


async def test_a_long_migration_is_let_run(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.store.postgres.connect", lambda url: connect(url, 1.5))
    know(monkeypatch, Migration(1, "slow", "SELECT pg_sleep(2)"))
    assert len(await migrate(empty)) == 1


async def test_nobody_there_is_told() -> None:
    for ask in (migrate, schema_of):
        with pytest.raises(StoreUnavailableError):
            await ask("postgresql://127.0.0.1:1/x")


def test_every_table_and_column_has_its_comment(postgres: Postgres, database_url: str) -> None:
    bare = postgres.psql(
        """
        SELECT c.relname, a.attname FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
        AND (obj_description(c.oid) IS NULL OR col_description(c.oid, a.attnum) IS NULL) AND NOT a.attisdropped
        """,
        database_url,
    )
    assert bare == ""


def test_they_are_given_in_order_with_name_and_text(tmp_path: Path) -> None:
    (tmp_path / "0002_b_c.sql").write_text("two")
    (tmp_path / "0001_a.sql").write_text("one")
    (tmp_path / "README.md").write_text("no migration")
    found = read_migrations(tmp_path)
    assert found == (Migration(1, "a", "one"), Migration(2, "b_c", "two"))
    assert [str(migration) for migration in found] == ["0001_a", "0002_b_c"]
    assert len({migration.checksum for migration in found}) == 2


@pytest.mark.parametrize("names", [["0002_a"], ["0001_a", "0003_b"], ["0001_a", "0001_b"], ["1_a"], ["a"], ["0001-a"]])
def test_a_gap_a_double_or_an_odd_name_is_refused(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / f"{name}.sql").write_text("")
    with pytest.raises(ValueError, match=r"_name\.sql"):
        read_migrations(tmp_path)


def test_both_stores_have_the_same_tables_views_and_columns(postgres: Postgres, database_url: str) -> None:
    connection = apsw.Connection(":memory:")
    for migration in migrations("sqlite"):
        connection.execute(migration.text)
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
    ours = {f"{name}|{row[1]}" for name in names for row in connection.execute(f"PRAGMA table_info({name})")}
    connection.close()
    # What is used of limits is in a file of its own on SQLite (sql/limits.sql): a call must not wait for the store's.
    # What replicas share is in files where there is no Postgres to share; one machine needs no sums by the hour.
    elsewhere = (
        "limit_",
        "event_counts",
        "event_sums",
        "event_findings",
        "fleet",
        "shared_documents",
        "shared_pins",
        "replica_",
        "call_owners",
        "call_claims",
    )
    theirs = {
        column for column in postgres.psql(COLUMNS, database_url).splitlines() if not column.startswith(elsewhere)
    }
    assert ours == theirs


@pytest.mark.parametrize("engine", ["postgres", "sqlite"])
def test_a_migration_that_databases_have_is_never_changed(engine: str) -> None:
    """Not even a comment of it: databases have its hash. Write another one, and add that to the file."""
    known = json.loads((Path(__file__).parent / "migrations.json").read_text())
    found = {f"{engine}/{each.version:04}_{each.name}.sql": each.checksum for each in migrations(engine)}
    assert found == {name: checksum for name, checksum in known.items() if name.startswith(engine)}
