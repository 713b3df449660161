"""Which store there is, and what a start makes of one that does not fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from proxy.errors import SchemaError
from proxy.store.open_store import check_at_start, open_database, open_store
from proxy.store.postgres import PostgresDatabase
from proxy.store.sqlite import SqliteDatabase
from tests.support.harness import free_port
from tests.support.postgres import Postgres


def test_a_url_means_postgres_and_none_means_a_file(tmp_path: Path) -> None:
    assert isinstance(open_store("postgresql://h/d", tmp_path).database, PostgresDatabase)
    for nothing in (None, ""):
        database = open_store(nothing, tmp_path).database
        assert isinstance(database, SqliteDatabase)
        assert database.path == tmp_path / "store" / "interlock.db"
    assert list(tmp_path.iterdir()) == []


async def test_a_start_needs_a_schema_that_fits(postgres: Postgres, tmp_path: Path) -> None:
    behind = open_database(postgres.new_database(migrated=False), tmp_path)
    with pytest.raises(SchemaError, match="interlock db migrate"):
        await check_at_start(behind)
    await behind.close()
    for url in (postgres.new_database(), None):
        database = open_database(url, tmp_path)
        await check_at_start(database)
        await database.close()


async def test_a_start_does_not_wait_for_a_store_that_is_away(tmp_path: Path) -> None:
    database = open_database(f"postgresql://u:s3cret@127.0.0.1:{free_port()}/x", tmp_path)
    with structlog.testing.capture_logs() as logs:
        await check_at_start(database)
    assert [(line["log_level"], "cannot be reached" in line["event"]) for line in logs] == [("warning", True)]
    assert "s3cret" not in str(logs)
    await database.close()


@pytest.mark.parametrize(("more", "told"), [("", True), ("?sslmode=prefer", True), ("?sslmode=require", False)])
async def test_a_connection_that_may_be_in_plain_text_is_told_at_the_start(
    more: str, told: bool, tmp_path: Path
) -> None:
    where = f"0.0.0.0:{free_port()}"  # this machine, by a name that says nothing of that
    database = open_database(f"postgresql://u:s3cret@{where}/x{more}", tmp_path)
    with structlog.testing.capture_logs() as logs:
        await check_at_start(database)
    found = [line for line in logs if "may be in plain text" in line["event"]]
    expected = [("warning", where)] if told else []
    assert [(line["log_level"], line["host"]) for line in found] == expected
    assert "s3cret" not in str(logs)
    await database.close()


def test_without_postgres_its_driver_is_not_loaded() -> None:
    program = "import sys, proxy.store.open_store, proxy.commands.db; sys.exit('asyncpg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
