"""Chains: the writers of a store, their events in order, columns held to the text; and exported events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.audit import chain_reader
from proxy.audit.chain_reader import START, AllChains, ExportedChains, LogChains, StoreChains, event_id
from proxy.audit.encoder import encode
from proxy.audit.event_store import Events
from proxy.audit.verify import Evidence, verify
from proxy.core.event import Head, LogEntry
from proxy.core.model import AuditEvent, Finding
from proxy.errors import ConfigError
from tests.support.postgres import Postgres
from tests.support.trail_fixture import execute, move, sign, signed, write


def entry(number: int, writer: str = "w", **fields: Any) -> LogEntry:
    made = AuditEvent(**{"event_id": f"e{number:03}", "kind": "decided", "time": 1000.0 + number, **fields})
    return LogEntry(encode(made), writer, number, f"link-{number}")


async def list_writers(events: Events) -> list[str]:
    return list(await StoreChains(events).heads())


async def test_writers_are_found_however_many_events_they_have(events: Events) -> None:
    assert await list_writers(events) == []
    await events.write([entry(number, writer) for number in range(3) for writer in ("b", "a", "c")])
    await events.write([entry(10 + place, writer) for place, writer in enumerate(("b", "a", "c"))])
    assert await list_writers(events) == ["a", "b", "c"]


async def test_pages_go_on_where_they_ended(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_reader, "LIMIT", 3)
    await events.write([entry(number) for number in range(1, 8)])
    first = await StoreChains(events).page("w", START)
    assert [one.entry.seq for one in first] == [1, 2, 3]
    second = await StoreChains(events).page("w", (3, "e003", 1003.0))
    assert [one.event_id for one in second] == ["e004", "e005", "e006"]
    assert await StoreChains(events).page("other", START) == []


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_an_event_that_is_shipped_between_two_pages_comes_once(
    events: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(chain_reader, "LIMIT", limit)
    writer = write(tmp_path, range(1, 8)).writer
    chains = AllChains(LogChains(tmp_path), StoreChains(events))
    await chains.heads()
    found = await chains.page(writer, START)
    await move(tmp_path, events)
    while page := await chains.page(writer, found[-1].position):
        found += page
    assert [one.entry.seq for one in found] == [1, 2, 3, 4, 5, 6, 7]


FULL: dict[str, Any] = {
    "call_id": "c",
    "agent": "é",
    "authenticated": True,
    "server": "s" * 300,
    "transport": "http",
    "jsonrpc_id": 7,
    "method": "tools/call",
    "tool": "t",
    "arguments": {"a": [1, 2.5, 1.5e300, None, True, 10**25, -0.0], "é": {"\u2028": "x\\u"}},
    "rules": ("a", "b"),
    "redactions": (Finding("d", "$.a", "f"),),
    "gate_ms": 0.1,
    "result_size": 2**40,
    "is_error": False,
    "detail": {"proposal_id": "p1", "sure": True},
}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        FULL,
        {"jsonrpc_id": "text"},
        {"arguments": {"a\0b": "\0"}, "tool": "a\0b"},
        {"arguments": {"x": float("inf")}},
        {"detail": {"proposal_id": 5}},
        {"jsonrpc_id": 7, "detail": {"proposal_id": "p1"}},
        {"arguments": "text", "time": 1763000000.123456},
        {"arguments": {"deep": [True, False, None, 1.0, 0]}},
    ],
    ids=range(9),
)
async def test_columns_as_they_were_written_say_what_the_text_says(fields: dict[str, Any], events: Events) -> None:
    assert (await events.write([entry(1, **fields)])).poison == {}
    (one,) = await StoreChains(events).page("w", START)
    assert one.wrong_column is None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("tool", "'x'"),
        ("arguments", "'{\"a\": 1}'"),
        ("is_error", "true"),
        ("gate_ms", "0.2"),
        ("proposal_id", "'p2'"),
        ("detail", '\'{"proposal_id": "p1", "sure": 1}\''),
    ],
)
async def test_a_column_that_says_another_thing_is_named(column: str, value: str, events: Events) -> None:
    await events.write([entry(1, **FULL)])
    await execute(events, f"UPDATE events SET {column} = {value}")
    (one,) = await StoreChains(events).page("w", START)
    assert one.wrong_column == column


async def test_a_text_that_is_no_event_is_told(events: Events) -> None:
    await events.write([entry(1)])
    await execute(events, "UPDATE events SET body = 'nonsense'")
    (one,) = await StoreChains(events).page("w", START)
    assert one.wrong_column == "body"


async def test_the_last_of_what_is_old_is_given(events: Events) -> None:
    await events.write([entry(number, writer) for number in range(1, 6) for writer in ("a",)])
    await events.write([LogEntry(encode(AuditEvent(event_id="z", kind="k", time=2000.0)), "b", 1, "x")])
    assert await StoreChains(events).last_old("a", 1003.5, 3000.0, None) == Head("a", 3, "link-3")
    assert await StoreChains(events).last_old("a", 1003.5, 3000.0, 1.5) == Head("a", 2, "link-2")
    assert await StoreChains(events).last_old("b", 10.0, 3000.0, None) is None


async def test_an_event_of_no_chain_is_found(events: Events) -> None:
    await events.write([entry(1)])
    assert await StoreChains(events).unchained() is None
    await events.write([LogEntry(encode(AuditEvent(event_id="loose", kind="k", time=1.0)))])
    assert await StoreChains(events).unchained() == "loose"


class TestInsidePostgres:
    """The function of migration 0004."""

    @pytest.fixture
    async def writer(self, tmp_path: Path, database_url: str) -> str:
        from proxy.audit.open_events import open_events

        head = write(tmp_path, range(1, 11), arguments={"é": "ü\0"})
        store = open_events(database_url, tmp_path)
        await move(tmp_path, store)
        await store.close()
        return head.writer

    def ask(self, postgres: Postgres, url: str, arguments: str) -> str:
        return postgres.psql(f"SELECT * FROM interlock_verify_chain({arguments})", url)

    async def test_a_good_chain_is_checked_whole_or_in_part(
        self, writer: str, postgres: Postgres, database_url: str
    ) -> None:
        assert self.ask(postgres, database_url, f"'{writer}'") == "10|||"
        assert self.ask(postgres, database_url, f"'{writer}', 4, 8") == "5|||"
        assert self.ask(postgres, database_url, "'nobody'") == "0|||"

    @pytest.mark.parametrize(
        ("sql", "said"),
        [
            ("UPDATE events SET body = replace(body, 'deny', 'allow') WHERE seq = 4", "3|4|e00004|altered"),
            ("UPDATE events SET chain = NULL WHERE seq = 4", "3|4|e00004|altered"),
            ("DELETE FROM events WHERE seq = 4", "3|4||missing"),
            ("DELETE FROM events WHERE seq = 1", "0|1||missing"),
            ("UPDATE events SET seq = 5 WHERE seq = 6", "5|5|e00006|repeated"),
        ],
    )
    async def test_the_first_bad_event_is_named(
        self, sql: str, said: str, writer: str, postgres: Postgres, database_url: str
    ) -> None:
        postgres.psql(sql, database_url)
        assert self.ask(postgres, database_url, f"'{writer}'") == said

    async def test_a_part_begins_from_the_event_before_it(
        self, writer: str, postgres: Postgres, database_url: str
    ) -> None:
        postgres.psql("UPDATE events SET body = replace(body, 'deny', 'allow') WHERE seq = 4", database_url)
        assert self.ask(postgres, database_url, f"'{writer}', 4, 8") == "0|4|e00004|altered"
        assert self.ask(postgres, database_url, f"'{writer}', 5, 8") == "4|||"


async def exported(state_dir: Path) -> list[dict[str, Any]]:
    logs = LogChains(state_dir)
    (writer,) = await logs.heads()
    entries = [one.entry for one in await logs.page(writer, START)]
    return [{"writer": one.writer, "seq": one.seq, "chain": one.chain, "body": one.body} for one in entries]


@pytest.fixture
async def lines(tmp_path: Path) -> list[dict[str, Any]]:
    write(tmp_path, range(1, 11))
    sign(tmp_path)
    return await exported(tmp_path)


async def checked(tmp_path: Path, lines: list[dict[str, Any]]) -> tuple[int, list[tuple[int | None, str]]]:
    file = tmp_path / "export.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "\n")
    report = await verify(ExportedChains(file), Evidence(signed(tmp_path)))
    return report.checked, [(problem.seq, problem.what) for problem in report.problems]


async def test_an_export_is_verified_in_whatever_order_its_lines_are(
    tmp_path: Path, lines: list[dict[str, Any]]
) -> None:
    assert await checked(tmp_path, lines) == (10, [])
    assert await checked(tmp_path, lines[::-1]) == (10, [])


async def test_tampering_with_an_export_is_found(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    assert (await checked(tmp_path, lines[:3] + lines[4:]))[1] == [(4, "missing")]
    assert (await checked(tmp_path, lines[:-1]))[1] == [(10, "missing")]
    assert (await checked(tmp_path, [*lines, lines[4]]))[1] == [(5, "repeated")]
    lines[3]["body"] = lines[3]["body"].replace("deny", "allow")
    assert (await checked(tmp_path, lines))[1] == [(4, "altered")]


async def test_a_line_without_a_place_is_found(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    loose = {"writer": None, "seq": None, "chain": None, "body": '{"event_id": "x"}'}
    assert await checked(tmp_path, [*lines, loose]) == (10, [(None, "unchained")])


@pytest.mark.parametrize("line", ["nonsense", "[]", "{}", '{"body": "x"}'])
def test_a_file_of_something_else_is_told_with_its_line(line: str, tmp_path: Path) -> None:
    (tmp_path / "e").write_text(f"\n{line}\n")
    with pytest.raises(ConfigError, match="line 2"):
        ExportedChains(tmp_path / "e")
    with pytest.raises(ConfigError, match="cannot be read"):
        ExportedChains(tmp_path / "none")


@pytest.mark.parametrize("body", ["nonsense", "[]", "{}", '{"event_id": 5}', "[" * 10_000])
def test_a_text_without_an_id_has_none(body: str) -> None:
    assert event_id(body) == ""
