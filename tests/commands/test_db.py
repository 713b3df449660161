"""`interlock db`."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from proxy.store.migrate import migrations
from tests.commands.conftest import Run, complaint
from tests.support.postgres import Postgres

POSTGRES = [str(migration) for migration in migrations("postgres")]
SQLITE = [str(migration) for migration in migrations("sqlite")]


def test_postgres_is_migrated_once_and_its_status_shown(run: Run, postgres: Postgres) -> None:
    url = postgres.new_database(migrated=False)
    before = run("db", "status", "--database-url", url)
    assert before.returncode == 1
    assert "run `interlock db migrate`" in before.stderr
    assert "missing" in before.stdout
    done = run("db", "migrate", "--database-url", url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:-1] == [f"applied {name}" for name in POSTGRES]
    again = run("db", "migrate", "--json", INTERLOCK_DATABASE_URL=url)
    assert json.loads(again.stdout) == {"store": url, "applied": []}
    after = run("db", "status", INTERLOCK_DATABASE_URL=url)
    assert (after.returncode, after.stderr) == (0, "")
    row = json.loads(run("db", "status", "--json", "--database-url", url).stdout)
    assert (row["problem"], row["store"]) == (None, url)
    assert [(m["migration"], m["state"]) for m in row["migrations"]] == [(name, "applied") for name in POSTGRES]


def test_a_changed_migration_is_told(run: Run, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.psql("UPDATE interlock_migrations SET checksum = 'x' WHERE version = 1", url)
    assert "was applied here with another text" in complaint(run("db", "migrate", "--database-url", url))
    status = run("db", "status", "--database-url", url)
    assert status.returncode == 1
    assert "changed" in status.stdout
    assert "another text" in status.stderr


def test_migrations_of_a_newer_version_are_shown(run: Run, postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.psql("INSERT INTO interlock_migrations VALUES (99, 'later', 'x')", url)
    status = run("db", "status", "--database-url", url)
    assert status.returncode == 0
    assert "0099_later" in status.stdout
    assert "newer" in status.stdout


def test_without_a_url_it_is_the_file_of_the_state_folder(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "state" / "store" / "interlock.db"
    before = run("db", "status", "--json")
    row = json.loads(before.stdout)
    assert before.returncode == 1
    assert (row["store"], {m["state"] for m in row["migrations"]}) == (str(path), {"missing"})
    assert not path.exists()
    assert json.loads(run("db", "migrate", "--json").stdout) == {"store": str(path), "applied": SQLITE}
    assert json.loads(run("db", "migrate", "--json").stdout)["applied"] == []
    after = run("db", "status")
    assert after.returncode == 0
    assert str(path) in after.stdout.replace("\n", "")
    assert "applied" in after.stdout


def test_a_file_of_a_newer_version_is_told(run: Run, tmp_path: Path) -> None:
    run("db", "migrate")
    connection = apsw.Connection(str(tmp_path / "state" / "store" / "interlock.db"))
    connection.execute("PRAGMA user_version=99")
    connection.close()
    assert "newer" in complaint(run("db", "status"))
    assert "newer" in complaint(run("db", "migrate"))


@pytest.mark.parametrize("command", ["migrate", "status"])
def test_what_cannot_be_reached_or_read_is_told_without_the_password(command: str, run: Run) -> None:
    told = complaint(run("db", command, "--database-url", "postgresql://u:s3cret@127.0.0.1:1/x"))
    assert "u:***@127.0.0.1:1/x cannot be used" in told
    told = complaint(run("db", command, "--database-url", "postgresql://u:s3/cret@h/x"))
    assert told.startswith("setting database_url = *** (from flag): write postgresql://")
    assert "cret" not in told
