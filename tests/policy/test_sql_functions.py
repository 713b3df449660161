"""The functions that only compute, held against what the databases say of their own."""

import contextlib
import sqlite3

from proxy.policy.sql_functions import HARMLESS

# These say "volatile" only because they return something else each time.
CHANGING = {
    *("clock_timestamp", "gen_random_uuid", "random", "timeofday", "uuidv4", "uuidv7", "statement_timestamp"),
    *("pg_database_size", "pg_indexes_size", "pg_relation_size", "pg_table_size", "pg_total_relation_size"),
}
# Grammar, not functions: the parser of the database makes something else of them.
GRAMMAR = {
    *("array", "coalesce", "current_catalog", "current_date", "current_role", "current_time", "current_timestamp"),
    *("extract", "greatest", "grouping", "least", "localtime", "localtimestamp", "nullif", "row", "trim", "xmlconcat"),
    *("xmlelement", "xmlforest", "current_schema", "current_user", "session_user", "normalize"),
}


def test_postgres_says_that_they_change_nothing(postgres):
    rows = postgres.psql(
        "SELECT proname, string_agg(DISTINCT provolatile::text, '') FROM pg_proc "
        "WHERE pronamespace = 'pg_catalog'::regnamespace GROUP BY 1"
    )
    volatility = dict(row.split("|") for row in rows.splitlines())
    names = HARMLESS["postgres"]
    assert {name for name in names if "v" in volatility.get(name, "")} <= CHANGING
    assert names - volatility.keys() - GRAMMAR == set()


def test_sqlite_has_them_built_in():
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        known = {row[0] for row in connection.execute("SELECT name FROM pragma_function_list WHERE builtin")}
        tables = {row[0] for row in connection.execute("SELECT name FROM pragma_module_list")}
    newer = {"concat", "concat_ws", "json_error_position", "jsonb", "octet_length", "string_agg", "timediff", "unhex"}
    missing = HARMLESS["sqlite"] - known - tables - newer
    assert missing <= {"cot", "current_date", "current_time", "current_timestamp"}


def test_none_of_them_reads_files_or_runs_anything():
    for names in HARMLESS.values():
        assert not names & {
            *("pg_read_file", "pg_sleep", "lo_import", "dblink", "nextval", "setval", "set_config", "query_to_xml"),
            *("load_file", "sleep", "benchmark", "get_lock", "load_extension", "readfile", "writefile", "edit"),
            *("openrowset", "openquery", "xp_cmdshell", "current_setting", "ts_stat", "table_to_xml"),
        }
