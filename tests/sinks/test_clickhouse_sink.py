"""ClickHouse as a sink, on chdb's engine behind ClickHouse's HTTP interface: its table, its views, its questions."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.core.event import LogEntry
from proxy.sinks import clickhouse_sink as module
from proxy.sinks.clickhouse_sink import open_sink
from proxy.sinks.role import SinkError
from proxy.sinks.settings import ClickHouseSettings
from proxy.system.package_data import sql_dir
from tests.support.clickhouse_server import ClickHouseServer
from tests.support.sink_worlds import WRITER, entries


@pytest.fixture(scope="module")
def server() -> Iterator[ClickHouseServer]:
    with ClickHouseServer() as server:
        yield server


NOW = time.time()


def made(seq: int, kind: str, ago: float, **fields: Any) -> LogEntry:
    body = {"event_id": f"{kind}-{seq}", "kind": kind, "time": NOW - ago, "method": "tools/call", **fields}
    return LogEntry(json.dumps(body), WRITER, seq, "c")


def trail() -> list[LogEntry]:
    day = 86_400
    found = [{"detector": "aws_key", "path": "$.a", "fingerprint": "f", "record_only": True}]
    return [
        made(1, "decided", 100, call_id="c1", agent="a", server="s", tool="t", decision="allow", redactions=found),
        made(
            2,
            "completed",
            99,
            call_id="c1",
            agent="a",
            server="s",
            tool="t",
            total_ms=7.5,
            outcome="ok",
            is_error=False,
        ),
        made(3, "decided", 90, call_id="c2", agent="b", server="s", tool="u", decision="deny", reason="r", rule="x"),
        made(4, "decided", 600, call_id="c3", agent="b", server="s", tool="t", decision="allow", shadow_rules=["sh"]),
        made(5, "decided", 1.2 * day, call_id="c4", agent="a", server="s", tool="t", decision="allow"),
        made(6, "approved", 50, agent="a", tool="t", proposal_id="p", detail={"operator": "eve", "reason": "fine"}),
    ]


async def test_the_view_has_a_row_a_call_and_the_columns_of_the_store(server: ClickHouseServer) -> None:
    sink = open_sink(ClickHouseSettings(kind="clickhouse", url=server.url))
    for _ in range(2):  # twice: every question must see each event once
        assert (await sink.write(trail())).poison == {}
    await sink.close()
    rows = server.query("SELECT * FROM interlock_tool_calls ORDER BY time DESC", "JSONEachRow").splitlines()
    calls = [json.loads(row) for row in rows]
    assert [(call["call_id"], call["decision"]) for call in calls[:2]] == [("c2", "deny"), ("c1", "allow")]
    assert len(calls) == 4
    assert (calls[1]["total_ms"], calls[1]["outcome"], calls[1]["is_error"]) == (7.5, "ok", False)
    assert (calls[0]["outcome"], calls[0]["completed_at"]) == (None, None)
    assert server.query("SELECT count() FROM interlock_denied_calls") == "1\n"
    text = (sql_dir() / "postgres" / "0002_events.sql").read_text()
    view = re.findall(r"COMMENT ON COLUMN tool_calls\.(\w+)", text)
    assert set(calls[0]) == set(view), "the same columns as in Postgres"


QUESTIONS = dict(
    re.findall(
        r"^-- name: (\w+)\n(.*?);$",
        (sql_dir() / "clickhouse" / "audit_queries.sql").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)
FIRST_ROWS: dict[str, list[str]] = {
    "denials_by_rule": ["x", "r", "1", "1"],
    "secrets_caught_by_tool": ["s", "t", "aws_key", "1", "1", "1"],
    "slowest_tools": ["s", "t", "1", "7.5", "7.5", "7.5"],
    "shadow_rules_that_would_have_matched": ["sh", "1", "1"],
    "secrets_by_host": ["s", "aws_key", "1", "1"],
}


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_ready_question_is_answered(server: ClickHouseServer, name: str) -> None:
    sink = open_sink(ClickHouseSettings(kind="clickhouse", url=server.url))
    await sink.write(trail())
    await sink.close()
    answer = server.query(QUESTIONS[name])
    first = answer.split("\n")[0].split("\t")
    assert first[: len(FIRST_ROWS.get(name, []))] == FIRST_ROWS.get(name, [])
    assert "c3" in server.query(QUESTIONS["calls_that_never_ended"])


def test_the_questions_are_those_of_postgres() -> None:
    ours = re.findall(r"^-- name: (\w+)$", (sql_dir() / "audit_queries.sql").read_text(), re.MULTILINE)
    # Proposals are in Postgres alone.
    assert list(QUESTIONS) == [name for name in ours if name != "commits_without_approval"]


async def test_events_of_many_months_are_taken_in_one_batch(server: ClickHouseServer) -> None:
    sink = open_sink(ClickHouseSettings(kind="clickhouse", url=server.url, table="months_events"))
    batch = [made(number, "k", number * 2_700_000) for number in range(102)]
    assert (await sink.write(batch)).kept == 102
    await sink.close()
    assert server.query("SELECT count() FROM months_events FINAL") == "102\n"


async def test_a_table_that_is_missing_and_may_not_be_created_is_told(server: ClickHouseServer) -> None:
    sink = open_sink(ClickHouseSettings(kind="clickhouse", url=server.url, table="no_events", create=False))
    with pytest.raises(SinkError, match="no_events"):
        await sink.write(entries(1, 1))
    await sink.close()


async def test_a_row_that_the_server_cannot_parse_keeps_no_other_out(
    server: ClickHouseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.row_of

    def broken(entry: LogEntry) -> bytes:
        return b'{"event_id": 1, "time": "never"}' if entry.seq == 3 else real(entry)

    monkeypatch.setattr(module, "row_of", broken)
    sink = open_sink(ClickHouseSettings(kind="clickhouse", url=server.url, table="broken_events"))
    written = await sink.write(entries(1, 5))
    await sink.close()
    assert (written.kept, list(written.poison)) == (4, [2])
    assert server.query("SELECT seq FROM broken_events FINAL ORDER BY seq") == "1\n2\n4\n5\n"


async def test_nothing_listens_and_the_password_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CH_PASSWORD", "hunter2")
    settings = ClickHouseSettings(kind="clickhouse", url="http://127.0.0.1:9", user="me", password="env:CH_PASSWORD")
    sink = open_sink(settings)
    with pytest.raises(SinkError, match=r"http://127\.0\.0\.1:9 cannot be used") as caught:
        await sink.write(entries(1, 1))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(settings)
