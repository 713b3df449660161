"""Named queries: each is used, each that is used is there, and the real databases accept them all."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import apsw
import apsw.ext
import pytest

from proxy.store import proposal_store, queries
from proxy.store.migrate import migrations
from proxy.store.postgres import connect
from proxy.store.queries import Queries, parse_queries
from proxy.system.package_data import sql_dir

ROOT = Path(__file__).resolve().parents[2]
FILES = {file.stem: parse_queries(file.read_text()) for file in sorted((sql_dir() / "queries").glob("*.sql"))}
STORE = (
    "proposals",
    "notices",
    "halts",
    "flows",
    "events",
    "chain",
    "trail",
    "rollout",
    "rule_proposals",
)  # SQL that both databases take
SQLITE = (
    *STORE,
    "events_sqlite",
    "log",
    "log_sinks",
    "shared_calls",
    "exported_events",
    "limits_sqlite",
    "clock_sqlite",
)
POSTGRES = (
    *(*STORE, "events_postgres", "proposals_postgres", "migrations", "doctor"),
    *("limits_postgres", "listen_postgres", "fleet", "clock_postgres", "replica_calls"),
)
# What the statements with parts are composed of, for each of their parts one that is well formed.
PARTS = {
    "conditions": "true",
    "in_call": "call_id = 'x'",
    "limit": "10",
    "rows": "({})",
    "writer": "'w'",
    "seq": "1",
    "past": "writer = 'w' AND seq > 1",
    "pattern": "'%x%'",
    "json_pattern": "'%x%'",
    "path": "'$.x'",
    "value": "'x'",
    "wanted": "'{}'",
}
FRAGMENTS = {
    "event_is_not_past": "SELECT 1 FROM events WHERE {}",
    "call_is_not_past": "SELECT 1 FROM tool_calls WHERE {}",
    "has_text": "SELECT 1 FROM tool_calls WHERE {}",
    "has_claim": "SELECT 1 FROM tool_calls WHERE {}",
}
ROW_VALUES = {"events_sqlite": 35, "log": 3}


def statements(subjects: tuple[str, ...]) -> list[Any]:
    return [pytest.param(s, name, id=f"{s}-{name}") for s in subjects for name in FILES[s]]


def whole(subject: str, name: str) -> str:
    rows = f"({', '.join('?' * ROW_VALUES.get(subject, 0))})"
    text = Queries(subject).compose(name, **(PARTS | {"rows": rows}))
    return FRAGMENTS.get(name, "{}").replace("{}", text) if name in FRAGMENTS else text


def constants(tree: ast.AST) -> set[str]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def loaded(tree: ast.Module) -> set[str]:
    """Return the files whose statements a module loads."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Queries"
    ]
    return set[str]().union(*map(constants, calls))


def taken(tree: ast.Module) -> set[str]:
    """Return the names that a module takes: `SQL["name"]` or `sql.compose("name", ...)`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and is_statements(node.value):
            found |= constants(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "compose":
            found |= constants(node.args[0]) if is_statements(node.func.value) else set()
    return found


def is_statements(node: ast.expr) -> bool:
    """Whether an expression ends in `SQL` or `.sql`."""
    if isinstance(node, ast.Attribute):
        return node.attr == "sql" or node.attr.endswith("SQL")
    return isinstance(node, ast.Name) and node.id.endswith("SQL")


SOURCES = {file: file.read_text() for file in sorted((ROOT / "proxy").rglob("*.py"))}
# A module without any of these words neither loads a statement nor takes one.
TREES = {file: ast.parse(text) for file, text in SOURCES.items() if re.search("Queries|SQL|[.]sql", text)}
# This class takes its statements from the file of whichever database it is extended for.
SHARED = TREES[ROOT / "proxy/audit/event_store.py"]


def users(subject: str) -> list[ast.Module]:
    return [tree for tree in TREES.values() if subject in loaded(tree)] + [SHARED] * subject.startswith("events")


def test_every_file_is_of_a_database() -> None:
    assert set(FILES) == {*SQLITE, *POSTGRES}


@pytest.mark.parametrize("subject", FILES)
def test_every_query_is_used(subject: str) -> None:
    # Names that are chosen between, or passed on to a helper, are constants of the module as well.
    assert set(FILES[subject]) - set[str]().union(*map(constants, users(subject))) == set()


@pytest.mark.parametrize("file", [file for file in TREES if taken(TREES[file])], ids=lambda file: file.stem)
def test_every_name_that_is_taken_exists(file: Path) -> None:
    subjects = loaded(TREES[file]) or {subject for subject in FILES if subject.startswith("events")}
    assert taken(TREES[file]) - {name for subject in subjects for name in FILES[subject]} == set()


@pytest.fixture(scope="module")
def sqlite() -> dict[str, apsw.Connection]:
    """A connection with the tables that each file of statements is for."""
    store = apsw.Connection(":memory:")
    for migration in migrations("sqlite"):
        store.execute(migration.text)
    log, shared, exported, limits = (apsw.Connection(":memory:") for _ in range(4))
    limits.execute((sql_dir() / "limits.sql").read_text())
    log.execute((sql_dir() / "log.sql").read_text())
    shared.execute((sql_dir() / "shared_calls.sql").read_text())
    logs = {"log": log, "log_sinks": log}
    return {**logs, "shared_calls": shared, "exported_events": exported, "limits_sqlite": limits} | dict.fromkeys(
        (*STORE, "events_sqlite", "clock_sqlite"), store
    )


@pytest.mark.parametrize(("subject", "name"), statements(SQLITE))
def test_sqlite_accepts_it(subject: str, name: str, sqlite: dict[str, apsw.Connection]) -> None:
    connection = sqlite[subject]
    if subject == "exported_events" and name != "make_table":
        connection = apsw.Connection(":memory:")
        connection.execute(FILES[subject]["make_table"])
    if name == "add_chain_column":
        connection = apsw.Connection(":memory:")
        connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, body TEXT)")
    text = whole(subject, name)
    assert apsw.ext.query_info(connection, text).query_remaining is None
    assert "{" not in text


@pytest.mark.parametrize(("subject", "name"), statements(POSTGRES))
async def test_postgres_accepts_it(subject: str, name: str, database_url: str) -> None:
    connection = await connect(database_url)
    try:
        await connection.prepare(whole(subject, name))
    finally:
        await connection.close()


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(KeyError, match="no_such_query"):
        Queries("proposals")["no_such_query"]
    with pytest.raises(FileNotFoundError):
        Queries("no_such_file")["x"]


def test_a_name_that_two_files_have_is_refused() -> None:
    with pytest.raises(ValueError, match="two files"):
        Queries("events_sqlite", "events_postgres")["insert_events"]


@pytest.mark.parametrize(
    "text", ["-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n", "-- name: a\n-- name: b\nSELECT 1\n"]
)
def test_a_name_that_comes_twice_or_without_a_statement_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="'a'"):
        parse_queries(text)


def test_comments_and_the_last_semicolon_are_not_sent() -> None:
    assert parse_queries("-- head\n\n-- name: a\n-- why\nSELECT 1,\n    -- this too\n    2;\n") == {
        "a": "SELECT 1,\n    2"
    }


def test_a_part_is_put_in_and_other_braces_stay() -> None:
    text = Queries("events", "events_postgres").compose("stats_secrets", conditions="agent = $1")
    assert "AND agent = $1" in text
    assert """'{"record_only": true}'""" in text


def test_a_file_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read, reads = Path.read_text, list[str]()
    monkeypatch.setattr(Path, "read_text", lambda self, *args: reads.append(self.name) or read(self, *args))
    queries = Queries("proposals")
    assert reads == []
    assert queries["find_commit"] != queries["find_proposal"]
    assert reads == ["proposals.sql"]


def test_statements_that_were_loaded_are_read_from_disk_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker that is forked after an upgrade in place must not run the old code with the new statements."""
    Queries.load_all()
    monkeypatch.setattr(queries, "sql_dir", lambda: tmp_path)
    assert "INSERT" in proposal_store.SQL["consume_nonce"]
    with pytest.raises(FileNotFoundError):
        _ = Queries("proposals")["consume_nonce"]
