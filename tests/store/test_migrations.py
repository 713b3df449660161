"""The migrations on disk: numbered, and of one kind with each other."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from proxy.store.migrations import Migration, migrations, read_migrations
from tests.support.postgres import Postgres

COLUMNS = (
    "SELECT table_name, column_name FROM information_schema.columns "
    "WHERE table_schema = 'public' AND table_name <> 'interlock_migrations' AND table_name !~ '^events_'"
)


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
    assert ours == set(postgres.psql(COLUMNS, database_url).splitlines())
