"""What SQL does, by our reading and by what real databases do."""

import asyncio
import contextlib
import itertools
import sqlite3
import time

import asyncpg
import pytest

from proxy.policy.sql_statements import MAX_SQL, read_sql
from tests.support import case_tables

TABLES = case_tables.table("sql")


@pytest.mark.parametrize(
    ("text", "kinds", "tables"),
    [
        ("SELECT 1", {"select"}, set()),
        ("WITH x AS (INSERT INTO a.t VALUES (1) RETURNING 1) SELECT * FROM x, U", {"select", "insert"}, {"a.t", "u"}),
        ("EXPLAIN SELECT * FROM t", {"explain"}, {"t"}),
        ("EXPLAIN (ANALYZE) UPDATE t SET a = 1", {"explain", "update"}, {"t"}),
        ("EXPLAIN SELECT 1; DROP TABLE t", {"explain", "select", "drop"}, {"t"}),
        ("LISTEN x", {"other"}, set()),
        ("((SELECT 1))", {"select"}, set()),
    ],
)
def test_kinds_and_tables(text, kinds, tables):
    found = read_sql(text, "postgres")
    assert found.problem is None
    assert found.kinds == kinds
    assert {".".join(table) for table in found.tables} == tables


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("WITH x AS (SELECT 1) SELECT * FROM x", set()),
        ("WITH x AS (SELECT * FROM x) SELECT * FROM x", {"x"}),
        ("WITH RECURSIVE x AS (SELECT * FROM x) SELECT * FROM x", set()),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM b", {"b"}),
        ("WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b", set()),
        ("SELECT * FROM (WITH x AS (SELECT 1) SELECT * FROM x) q, x", {"x"}),
        ("WITH x AS (SELECT 1) SELECT * FROM public.x", {"public.x"}),
        ("WITH x AS (SELECT 1) SELECT (SELECT max(a) FROM x), (SELECT 1 FROM y)", {"y"}),
    ],
)
def test_a_name_is_a_table_where_no_with_is_in_force(text, tables):
    assert {".".join(table) for table in read_sql(text, "postgres").tables} == tables


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 60 + "1" + ")" * 60,
        "SELECT " + "CASE WHEN 1 THEN " * 60 + "1" + " END" * 60,
        "SELECT " + "1+" * 2000 + "1",
        "SELECT " + "x" * MAX_SQL,
        "SELECT join end " + "join end " * 45,
        "SELECT " + "join in " * 45,
        "SELECT " + "- " * 2900 + "1",
        "SELECT " + "NOT " * 1500 + "1",
    ],
    ids=range(8),
)
@pytest.mark.parametrize("dialect", ["postgres", "mysql", "sqlite", "tsql"])
def test_sql_made_to_be_slow_is_given_up_in_time(text, dialect):
    read_sql.cache_clear()
    start = time.process_time()
    read_sql(text, dialect)
    assert time.process_time() - start < 1


def test_an_error_inside_the_parser_is_a_problem_and_no_crash(monkeypatch):
    read_sql.cache_clear()
    monkeypatch.setattr("sqlglot.tokenize", lambda *_args, **_options: {}["x"])
    assert "cannot be parsed" in read_sql("SELECT 17", "postgres").problem
    read_sql.cache_clear()


def only_selects(text, dialect):
    found = read_sql(text, dialect)
    return found.problem is None and found.kinds <= {"select", "explain"} and not found.functions


def all_cases(dialect):
    groups = [group for group in TABLES if group["id"].startswith(dialect)]
    cases = [case for group in groups for name, value in group.items() if isinstance(value, list) for case in value]
    return list(dict.fromkeys(case for case in cases if isinstance(case, str)))


# Pieces of SQL, put together in every way: what our reading takes for a SELECT, a database must take for one.
OPENINGS = ["SELECT " + start for start in ("1", "'a", "$$a", '"a', "E'a", "1 /* a", "1 -- a", "U&'a")]
MIDDLES = ["'", "''", "$$", '"', "\\'", "*/", "/*", "\n", "\r", "--", "$x$", "\x0b", "\u00a0", "%", "#", "`", "]"]
WRITES = "; DELETE FROM t"
ENDINGS = [WRITES, f"{WRITES} --'", f"{WRITES} /*'", f"' {WRITES} --", f" */{WRITES}", f"$${WRITES}"]
SPLICED = ["".join(parts) for parts in itertools.product(OPENINGS, MIDDLES, MIDDLES, ENDINGS)]

SCHEMA = """
CREATE TABLE t (a int, b text, j jsonb); INSERT INTO t VALUES (1, 'x', '{"x": [1]}'), (2, 'y', '{}');
CREATE TABLE u (a int, b text); CREATE TABLE orders (id int); CREATE TABLE users (id int);
CREATE SCHEMA sales; CREATE TABLE sales.items (id int); CREATE SEQUENCE s;
CREATE FUNCTION evil(x int DEFAULT 1) RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES (x) RETURNING a';
CREATE FUNCTION public.lower(x text) RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES (5) RETURNING a';
CREATE FUNCTION my_own_function(x int) RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES (x) RETURNING a';
CREATE PROCEDURE p() LANGUAGE sql AS 'DELETE FROM t'
"""
STATE = """
SELECT (SELECT string_agg(t::text, ',') FROM t), (SELECT count(*) FROM pg_class), (SELECT last_value FROM s),
       (SELECT count(*) FROM pg_largeobject_metadata), (SELECT count(*) FROM pg_proc), (SELECT count(*) FROM u)
"""


async def run_in_postgres(url, cases):
    """Return the cases that wrote something, those that ran, and whether anything differs after them all."""
    connection = await asyncpg.connect(url, server_settings={"statement_timeout": "5000"})
    try:
        await connection.execute(SCHEMA)
        before = await connection.fetchrow(STATE)
        wrote, ran = [], []
        for case in cases:
            await connection.execute("BEGIN")
            try:
                await connection.execute(case)
                ran.append(case)
                if await connection.fetchval("SELECT pg_current_xact_id_if_assigned()") is not None:
                    wrote.append(case)
            except asyncpg.PostgresError:
                pass
            finally:
                await connection.execute("ROLLBACK")
        return wrote, ran, before == await connection.fetchrow(STATE)
    finally:
        await connection.close()


def test_postgres_writes_nothing_for_what_we_take_for_a_select(postgres):
    url = postgres.new_database(migrated=False)
    cases = [case for case in (*all_cases("postgres"), *SPLICED) if only_selects(case, "postgres")]
    wrote, ran, unchanged = asyncio.run(run_in_postgres(url, cases))
    assert wrote == []
    assert unchanged
    assert len(ran) > 40


def test_the_oracle_sees_a_write(postgres):
    url = postgres.new_database(migrated=False)
    hostile = ["DELETE FROM t", "SELECT evil()", "SELECT public.lower('x')", "SELECT * INTO x FROM t"]
    wrote, ran, _ = asyncio.run(run_in_postgres(url, hostile))
    assert wrote == ran == hostile
    assert not any(only_selects(case, "postgres") for case in hostile)


READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


def test_sqlite_writes_nothing_for_what_we_take_for_a_select():
    refused = []

    def authorize(action, *_rest):
        if action not in READING:
            refused.append(action)
        return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY

    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript("CREATE TABLE t (a, b, j); INSERT INTO t VALUES (1, 'x', '{}'), (2, 'y', '{}');")
        before = "\n".join(connection.iterdump())
        connection.set_authorizer(authorize)
        ran = 0
        for case in (case for case in (*all_cases("sqlite"), *SPLICED) if only_selects(case, "sqlite")):
            with contextlib.suppress(sqlite3.Error, ValueError):
                connection.executescript(case)
                ran += 1
        connection.set_authorizer(None)
        assert refused == []
        assert "\n".join(connection.iterdump()) == before
        assert ran > 3
