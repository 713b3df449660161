"""What a store of events promises, on SQLite and on Postgres alike."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.audit.encoder import encode
from proxy.audit.event_store import Events
from proxy.audit.open_events import open_events
from proxy.core.event import Cursor, DayStats, DenialStats, Filter, Head, LogEntry, SecretStats, Written
from proxy.core.model import AuditEvent, Finding
from proxy.errors import StoreUnavailableError

NOW = 1_763_000_000.25
UNWIELDY = "".join(chr(0x1_0000 + number * 7919 % 0x1_0000) for number in range(5000))  # 4 bytes each, no pattern
Where = tuple[str | None, Path]


def event(number: int = 1, kind: str = "decided", **fields: Any) -> LogEntry:
    plain: dict[str, Any] = {
        "event_id": f"e{number:04}",
        "kind": kind,
        "time": NOW + number,
        "call_id": f"c{number}",
        "agent": "ada",
        "authenticated": True,
        "server": "files.example:443",
        "transport": "http",
        "method": "tools/call",
        "tool": "read_file",
    }
    return LogEntry(encode(AuditEvent(**(plain | fields))), "log-1", number, f"hash-{number}")


def decided(number: int = 1, **fields: Any) -> LogEntry:
    return event(number, **({"decision": "allow", "reason": "default"} | fields))


def completed(number: int, of: int, **fields: Any) -> LogEntry:
    plain = {"outcome": "done", "is_error": False, "total_ms": 4.5, "upstream_ms": 3.5, "result_size": 10}
    return event(number, "completed", **({"call_id": f"c{of}"} | plain | fields))


async def ids(events: Events, **where: Any) -> list[str]:
    return [call.event_id for call in await events.calls(Filter(**where))]


class TestWriting:
    async def test_an_event_is_kept_exactly_as_it_was_recorded(self, events: Events) -> None:
        body = '{"time": 1763000000.5,  "kind":"odd","event_id":"e1", "z": 1.0, "a": "\\u00e9é"}'
        assert await events.write([LogEntry(body, "w", 7, "h")]) == Written(1)
        assert await events.find("e1") == [LogEntry(body, "w", 7, "h")]

    async def test_what_came_before_is_left_as_it_is(self, events: Events) -> None:
        first = decided(1, tool="a")
        assert await events.write([first]) == Written(1)
        assert await events.write([decided(1, tool="b"), decided(2)]) == Written(2)
        assert await events.find("e0001") == [first]
        assert (await events.stats(Filter())).events == 2

    async def test_a_batch_may_hold_an_event_twice(self, events: Events) -> None:
        assert await events.write([decided(1), decided(1)]) == Written(2)
        assert (await events.stats(Filter())).events == 1

    async def test_an_empty_batch_is_nothing(self, events: Events) -> None:
        assert await events.write([]) == Written(0)

    async def test_writers_at_once_keep_each_event_once(self, events: Events, where: Where) -> None:
        other = open_events(*where)
        batch = [decided(number) for number in range(300)]
        try:
            await asyncio.gather(*(store.write(batch) for store in (events, other) for _ in range(3)))
        finally:
            await other.close()
        assert (await events.stats(Filter())).events == 300

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ("", "JSON"),
            ("nonsense", "JSON"),
            ("[1]", "no JSON object"),
            ("5", "no JSON object"),
            ("{}", "event_id"),
            ('{"event_id": "x", "kind": "k"}', "time"),
            ('{"event_id": "x", "time": 1}', "kind"),
            ('{"event_id": "", "kind": "k", "time": 1}', "event_id"),
            ('{"event_id": null, "kind": "k", "time": 1}', "event_id"),
            ('{"event_id": "%s", "kind": "k", "time": 1}' % ("x" * 3000), "event_id"),
            ('{"event_id": "x\\u0000", "kind": "k", "time": 1}', "event_id"),
            ('{"event_id": "x", "kind": "", "time": 1}', "kind"),
            ('{"event_id": "x", "kind": "k", "time": NaN}', "time"),
            ('{"event_id": "x", "kind": "k", "time": Infinity}', "time"),
            ('{"event_id": "x", "kind": "k", "time": -1}', "time"),
            ('{"event_id": "x", "kind": "k", "time": 1e15}', "time"),
            ('{"event_id": "x", "kind": "k", "time": "soon"}', "time"),
            ("\0", "NUL"),
            ("\ud800", "JSON"),
            ("[" * 100_000, "JSON"),
        ],
        ids=lambda value: ascii(value)[:40],
    )
    async def test_poison_is_told_and_keeps_nothing_else_out(self, events: Events, body: str, why: str) -> None:
        written = await events.write([decided(1), LogEntry(body), decided(2), LogEntry(body), decided(3)])
        assert (written.kept, list(written.poison)) == (3, [1, 3])
        assert why in written.poison[1]
        assert (await events.stats(Filter())).events == 3

    @pytest.mark.parametrize(
        "fields",
        [
            {"agent": "a\0b", "arguments": {"a\0": ["\0", {"b": "\0"}]}, "detail": {"x": "\0"}},
            {"tool": "t" * 5000, "server": "s" * 5000, "agent": "é" * 5000, "call_id": "c" * 5000, "rule": "r" * 5000},
            dict.fromkeys(("tool", "server", "agent", "call_id", "rule", "reason", "decision", "session"), UNWIELDY),
            {"arguments": {"x": "y" * 100_000}},
            {"arguments": {"n": float("nan"), "m": [float("inf")]}, "gate_ms": float("inf")},
            {"arguments": {"n": 10**30, "f": 1e300}},
            {"result_size": 10**30},
            {"jsonrpc_id": "x" * 3000},
            {"jsonrpc_id": 10**19},
            {"is_error": "perhaps", "gate_ms": "fast", "authenticated": 5},
            {"agent": 5, "tool": ["t"], "rules": "r", "redactions": ()},
            {"arguments": "text"},
            {"arguments": []},
            {"detail": {"proposal_id": "p" * 5000}},
            {"detail": {"proposal_id": {"a": 1}}},
        ],
        ids=lambda fields: ascii(fields)[:40],
    )
    async def test_no_odd_value_is_poison_and_every_text_stays_exact(
        self, events: Events, fields: dict[str, Any]
    ) -> None:
        odd = decided(1, **fields)
        assert await events.write([odd, decided(2)]) == Written(2)
        assert [entry for _, entry in await events.events(Filter())] == [odd, decided(2)]
        assert len(await events.calls(Filter())) == 2

    async def test_what_is_written_is_there_for_another_store(self, events: Events, where: Where) -> None:
        await events.write([decided(1)])
        other = open_events(*where)
        assert len(await other.find("e0001")) == 1
        await other.close()

    async def test_a_closed_store_refuses(self, events: Events) -> None:
        await events.close()
        with pytest.raises(StoreUnavailableError, match="closed"):
            await events.write([decided(1)])


class TestCalls:
    async def test_a_call_has_its_decision_and_its_end(self, events: Events) -> None:
        finding = Finding("secrets.aws", "$.key", "f1")
        await events.write(
            [
                decided(
                    1,
                    arguments={"path": "/a"},
                    arguments_hash="h",
                    rule="r",
                    rules=("r", "s"),
                    shadow_rules=("t",),
                    policy_version="v",
                    redactions=(finding,),
                    gate_ms=0.5,
                    jsonrpc_id=7,
                    session="sess",
                    revision="2025-11-25",
                ),
                completed(2, 1, result_digest="d", is_error=True, outcome="tool_error"),
            ]
        )
        (call,) = await events.calls(Filter())
        assert (call.call_id, call.event_id, call.time) == ("c1", "e0001", NOW + 1)
        assert (call.agent, call.authenticated, call.server, call.tool) == (
            "ada",
            True,
            "files.example:443",
            "read_file",
        )
        assert (call.transport, call.revision, call.session, call.jsonrpc_id) == ("http", "2025-11-25", "sess", "7")
        assert (call.arguments, call.arguments_hash) == ({"path": "/a"}, "h")
        assert (call.decision, call.reason, call.rule) == ("allow", "default", "r")
        assert (call.rules, call.shadow_rules, call.policy_version) == (("r", "s"), ("t",), "v")
        assert [dict(one) for one in call.redactions] == [
            {"detector": "secrets.aws", "path": "$.key", "fingerprint": "f1", "maskable": True}
        ]
        assert (call.gate_ms, call.upstream_ms, call.total_ms) == (0.5, 3.5, 4.5)
        assert (call.result_digest, call.result_size, call.is_error, call.outcome) == ("d", 10, True, "tool_error")
        assert call.completed_at == NOW + 2

    async def test_a_call_that_has_not_ended_is_there_all_the_same(self, events: Events) -> None:
        await events.write([decided(1)])
        (call,) = await events.calls(Filter())
        assert (call.outcome, call.is_error, call.total_ms, call.completed_at) == (None, None, None, None)
        assert (call.arguments, call.rules, call.redactions) == (None, (), ())

    async def test_only_tool_calls_are_calls_and_each_is_one_row(self, events: Events) -> None:
        await events.write(
            [
                decided(1),
                completed(2, 1, outcome="input_required"),
                completed(3, 1, outcome="done"),
                decided(4, method="resources/read", tool=None),
                event(5, "approved", call_id="c1"),
            ]
        )
        (call,) = await events.calls(Filter())
        assert (call.call_id, call.outcome) == ("c1", "done")

    async def test_the_newest_come_first_page_by_page(self, events: Events) -> None:
        same = NOW + 50
        await events.write([decided(number, time=same if number > 5 else NOW + number) for number in range(1, 10)])
        expected = [f"e{number:04}" for number in range(9, 0, -1)]
        assert await ids(events) == expected
        pages: list[str] = []
        cursor = None
        while page := await events.calls(Filter(), 2, cursor):
            pages += [call.event_id for call in page]
            cursor = page[-1].cursor
        assert pages == expected


class TestFilters:
    @pytest.fixture(autouse=True)
    async def filled(self, events: Events) -> None:
        await events.write(
            [
                decided(1, agent="ada", tool="read_file", arguments={"path": "/etc/passwd", "n": 3}),
                decided(2, agent="bob", tool="read_file", decision="deny", reason="policy_denied", rule="no-etc"),
                decided(3, agent="ada", tool="fs_write", server="other:1", arguments={"a": {"b": ["x", {"c": True}]}}),
                decided(4, agent="eve", tool="fsXwrite", arguments={"n": "3", "null": None, "a.b": 1}),
                decided(
                    5,
                    agent="100%",
                    tool="[odd]?",
                    arguments={"0": "zero", 'q"\\': 1, "f": 2.5, "é": "ü", "big": 10**25},
                ),
            ]
        )

    @pytest.mark.parametrize(
        ("asked", "numbers"),
        [
            ({}, [5, 4, 3, 2, 1]),
            ({"since": NOW + 2, "until": NOW + 4}, [3, 2]),
            ({"since": NOW + 6}, []),
            ({"agent": "ada"}, [3, 1]),
            ({"agent": "ADA"}, []),
            ({"agent": "a*"}, [3, 1]),
            ({"agent": "A*"}, []),
            ({"agent": "*b*"}, [2]),
            ({"agent": "100%*"}, [5]),
            ({"agent": "10%*"}, []),
            ({"tool": "fs_*"}, [3]),
            ({"tool": "*?"}, [5]),
            ({"tool": "[odd]*"}, [5]),
            ({"tool": "read_file", "agent": "bob"}, [2]),
            ({"server": "other:1"}, [3]),
            ({"server": "*.example:*"}, [5, 4, 2, 1]),
            ({"decision": "deny"}, [2]),
            ({"rule": "no-etc"}, [2]),
            ({"rule": "no-*"}, [2]),
            ({"arguments": (("path", "/etc/passwd"),)}, [1]),
            ({"arguments": (("path", "/etc"),)}, []),
            ({"arguments": (("n", "3"),)}, [4, 1]),
            ({"arguments": (("n", "3.0"),)}, [1]),
            ({"arguments": (("n", "3"), ("path", "/etc/passwd"))}, [1]),
            ({"arguments": (("a.b.0", "x"),)}, [3]),
            ({"arguments": (("a.b[1].c", "true"),)}, [3]),
            ({"arguments": (("a.b[0].c", "true"),)}, []),
            ({"arguments": (("null", "null"),)}, [4]),
            ({"arguments": (("gone", "null"),)}, []),
            ({"arguments": (("0", "zero"),)}, [5]),
            ({"arguments": (('q"\\', "1"),)}, [5]),
            ({"arguments": (("f", "2.5"),)}, [5]),
            ({"arguments": (("f", "2.50"),)}, [5]),
            ({"arguments": (("é", "ü"),)}, [5]),
            ({"arguments": (("", ""),)}, []),
            ({"arguments": (("a.b", "1"),)}, []),
            ({"arguments": (('["a.b"]', "1"),)}, [4]),
            ({"arguments": (('["a"].["b"][0]', "x"),)}, [3]),
            ({"arguments": (("big", "10000000000000000000000000"),)}, [5]),
            ({"arguments": (("big", "10000000000000000000000001"),)}, []),
            ({"arguments": (("a.b[99999999999999999999]", "x"),)}, []),
            ({"arguments": (("a.b.\u0660", "x"),)}, []),
            ({"arguments": (("a.b", "x"),)}, []),
            ({"arguments": (("n", "1e999"),)}, []),
            ({"arguments": (("path", "'; DROP TABLE events; --"),)}, []),
            ({"tool": "\0", "arguments": (("\0", "\ud800"),)}, []),
            ({"tool": "x" * 10_000}, []),
        ],
        ids=lambda value: ascii(value)[:60],
    )
    async def test_calls_that_fit_are_given(self, events: Events, asked: dict[str, Any], numbers: list[int]) -> None:
        assert await ids(events, **asked) == [f"e{number:04}" for number in numbers]
        fitting = [cursor.event_id for cursor, _ in await events.events(Filter(**asked))]
        assert fitting == [f"e{number:04}" for number in reversed(numbers)]


class TestEvents:
    async def test_all_kinds_are_given_oldest_first_page_by_page(self, events: Events) -> None:
        entries = [
            decided(1),
            completed(2, 1),
            event(3, "observed"),
            event(4, "egress_denied", tool=None, call_id=None),
        ]
        await events.write(list(reversed(entries)))
        found: list[LogEntry] = []
        cursor: Cursor | None = None
        while page := await events.events(Filter(), 3, cursor):
            found += [entry for _, entry in page]
            cursor = page[-1][0]
        assert found == entries

    async def test_every_event_of_a_call_is_found_in_order(self, events: Events) -> None:
        await events.write([completed(3, 1), decided(1), decided(2), event(4, "observed", call_id="c1")])
        assert await events.find("c1") == [decided(1), completed(3, 1), event(4, "observed", call_id="c1")]
        assert await events.find("e0002") == [decided(2)]
        for nothing in ("gone", "", "\0", "c" * 5000):
            assert await events.find(nothing) == []


class TestStats:
    async def test_an_empty_store_has_nothing(self, events: Events) -> None:
        stats = await events.stats(Filter())
        assert (stats.events, stats.first, stats.last, stats.tools, stats.denials) == (0, None, None, [], [])

    async def test_tools_and_refusals_are_counted_the_most_first(self, events: Events) -> None:
        await events.write(
            [
                *(decided(number, tool="a") for number in (1, 2, 3)),
                decided(4, tool="b", decision="deny", reason="policy_denied", rule="r"),
                decided(5, tool="a", decision="deny", reason="tool_changed"),
                decided(6, tool="a", decision="deny", reason="tool_changed"),
                completed(7, 1, tool="a", total_ms=1.0),
                completed(8, 2, tool="a", total_ms=3.0, is_error=True),
                decided(9, method="ping", tool=None),
            ]
        )
        stats = await events.stats(Filter())
        assert (stats.events, stats.first, stats.last) == (9, NOW + 1, NOW + 9)
        assert [(t.tool, t.calls, t.denied, t.errors, t.mean_ms, t.max_ms) for t in stats.tools] == [
            ("a", 5, 2, 1, 2.0, 3.0),
            ("b", 1, 1, 0, None, None),
        ]
        assert stats.denials == [DenialStats("tool_changed", None, 2), DenialStats("policy_denied", "r", 1)]
        assert [t.tool for t in (await events.stats(Filter(tool="b"))).tools] == ["b"]
        assert [t.completed for t in stats.tools] == [2, 0]

    async def test_findings_are_counted_by_tool_and_detector(self, events: Events) -> None:
        found = Finding("secrets.aws", "text", "f1")
        await events.write(
            [
                decided(1, tool="a", redactions=(found, found)),
                completed(2, 1, tool="a", redactions=(Finding("pii.card", "result", "f2"),)),
                decided(3, tool="b", redactions=(replace(found, record_only=True),)),
                decided(4, tool="b"),
            ]
        )
        assert (await events.stats(Filter())).secrets == [
            SecretStats("files.example:443", "a", "secrets.aws", 2),
            SecretStats("files.example:443", "a", "pii.card", 1),
            SecretStats("files.example:443", "b", "secrets.aws", 1, 1),
        ]

    @pytest.mark.parametrize("odd", ['"x"', '["x", 5, null, []]', '{"detector": "d"}', "7"])
    async def test_redactions_of_an_odd_form_are_no_obstacle(self, events: Events, odd: str) -> None:
        body = f'{{"event_id": "e1", "kind": "decided", "time": {NOW}, "redactions": {odd}}}'
        await events.write([LogEntry(body)])
        assert {one.detector for one in (await events.stats(Filter())).secrets} <= {None}

    async def test_calls_are_counted_by_day(self, events: Events) -> None:
        day = 86_400
        await events.write(
            [
                decided(1, time=1_763_000_000 - 2 * day),
                decided(2, time=1_763_000_000),
                decided(3, time=1_763_000_001, decision="deny"),
                decided(4, time=1_763_000_002, method="ping"),
            ]
        )
        assert (await events.stats(Filter())).days == [DayStats("2025-11-11", 1, 0), DayStats("2025-11-13", 2, 1)]


class TestCounting:
    async def test_what_fits_is_counted(self, events: Events) -> None:
        await events.write([decided(1), decided(2, tool="x"), completed(3, 1)])
        assert await events.count(Filter()) == 3
        assert await events.count(Filter(tool="x")) == 1
        assert await events.count(Filter(since=NOW + 2, until=NOW + 3)) == 1

    async def test_what_a_writer_wrote_past_a_number_can_be_left_out(self, events: Events) -> None:
        loose = LogEntry(f'{{"event_id": "loose", "kind": "k", "time": {NOW}}}')
        await events.write([decided(1), decided(2), decided(3), loose])
        for without, left in (((("log-1", 1),), 2), ((("log-1", 0),), 1), ((("other", 0),), 4)):
            where = Filter(without=without)
            assert await events.count(where) == left
            assert len(await events.events(where)) == left
            assert (await events.stats(where)).events == left
            assert len(await events.calls(where)) == min(left, 3) - (left < 4)


class TestIds:
    FIRST = "01a08d7c-9f00-7abc-8000-000000000001"
    SECOND = "01a08d7c-9f00-7abc-8000-000000000002"

    async def write(self, events: Events) -> None:
        seconds = int(self.FIRST.replace("-", "")[:12], 16) / 1000
        await events.write(
            [
                decided(1, call_id=self.FIRST, time=seconds),
                completed(2, 1, call_id=self.FIRST, time=seconds + 1),
                decided(3, call_id=self.SECOND, time=seconds),
                event(4, "egress_denied", call_id=None, event_id="lone-event"),
            ]
        )

    async def test_a_beginning_leads_to_calls_and_to_events_outside_calls(self, events: Events) -> None:
        await self.write(events)
        assert await events.ids(self.FIRST) == [self.FIRST]
        assert await events.ids(self.FIRST[:20], limit=5) == [self.FIRST, self.SECOND]
        assert await events.ids(self.FIRST[:20], limit=1) == [self.FIRST]
        assert await events.ids("lone-") == ["lone-event"]
        assert await events.ids("e0002") == ["e0002"]
        assert await events.ids("nothing") == []

    @pytest.mark.parametrize("odd", ["%", "_", "lone_", "*", "?one-", "[l]one", "\\", "\0", "'"])
    async def test_a_beginning_is_taken_as_it_is(self, events: Events, odd: str) -> None:
        await self.write(events)
        assert await events.ids(odd) == ([] if odd != "*" else await events.ids(""))

    async def test_an_id_whose_time_is_not_the_events_is_found_too(self, events: Events) -> None:
        await events.write([decided(1, call_id=self.FIRST)])  # months before or after what the id says
        assert await events.ids(self.FIRST[:30]) == [self.FIRST]


class TestPruning:
    async def test_what_is_older_is_gone_and_nothing_else(self, events: Events) -> None:
        await events.write([decided(number) for number in range(1, 11)])
        assert await events.prune(NOW + 4, [Head("log-1", 3, "")]) == 3
        assert [entry for _, entry in await events.events(Filter())] == [decided(number) for number in range(4, 11)]
        assert await events.prune(NOW + 4, [Head("log-1", 3, "")]) == 0
        assert await events.prune(NOW + 1000, [Head("log-2", 99, "")]) == 0
        assert await events.prune(NOW + 1000, [Head("log-1", 99, ""), Head("log-2", 99, "")]) == 7

    async def test_what_is_of_no_chain_goes_by_its_time(self, events: Events) -> None:
        await events.write([LogEntry(decided(number).body) for number in range(1, 11)])
        assert await events.prune(NOW + 4) == 3
        assert await events.prune(NOW + 1000) == 7

    async def test_many_are_pruned(self, events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("proxy.audit.event_store_sqlite.PRUNE_ROWS", 10)
        await events.write([decided(number) for number in range(25)])
        assert await events.prune(NOW + 100, [Head("log-1", 99, "")]) == 25

    async def test_making_room_can_be_done_again_and_again(self, events: Events) -> None:
        for _ in range(2):
            await events.prepare(NOW)
            await events.write([decided(1)])
        assert (await events.stats(Filter())).events == 1


def rows(events: Events, sql: str) -> Any:
    return events.database.fetch(sql)


class TestViews:
    async def test_denied_calls_are_of_every_method(self, events: Events) -> None:
        await events.write(
            [
                decided(1),
                decided(2, decision="deny", reason="policy_denied", rule="r"),
                decided(3, decision="deny", reason="method_denied", method="resources/read", tool=None),
            ]
        )
        found = await rows(events, "SELECT call_id, method, tool, reason, rule FROM denied_calls ORDER BY time")
        assert [tuple(row) for row in found] == [
            ("c2", "tools/call", "read_file", "policy_denied", "r"),
            ("c3", "resources/read", None, "method_denied", None),
        ]

    async def test_the_ledger_has_one_row_a_proposal(self, events: Events) -> None:
        detail = {"proposal_id": "p1", "approval": "human"}
        await events.write(
            [
                event(1, "proposed", rule="pay", arguments_hash="h", detail=detail | {"composite_score": 0.25}),
                event(2, "approved", detail={"proposal_id": "p1", "operator": "olga"}),
                event(3, "committed", call_id="commit-call", detail={"proposal_id": "p1"}),
                event(4, "proposed", detail={"proposal_id": "p2", "approval": "auto"}),
                decided(5),
            ]
        )
        found = await rows(
            events,
            "SELECT proposal_id, agent, tool, rule, approval, composite_score, operator, commit_call_id, last_event, "
            "approved_at, committed_at, rejected_at, proposed_at FROM two_phase_ledger ORDER BY proposal_id",
        )
        times = (NOW + 2, NOW + 3, None, NOW + 1)
        assert [tuple(row) for row in found] == [
            ("p1", "ada", "read_file", "pay", "human", "0.25", "olga", "commit-call", "committed", *times),
            ("p2", "ada", "read_file", None, "auto", None, None, None, "proposed", None, None, None, NOW + 4),
        ]

    async def test_behaviour_is_counted_by_tool_and_capability(self, events: Events) -> None:
        def seen(number: int, *counts: tuple[str, int], **fields: Any) -> LogEntry:
            entries = [{"capability": capability, "count": count, "path": "/x"} for capability, count in counts]
            detail = {"phase": "call", "observations": entries, **fields.pop("detail", {})}
            return event(number, "observed", detail=detail, **fields)

        await events.write(
            [
                seen(1, ("fs.read", 2), ("net.connect", 1), call_id="c1", detail={"more": {"fs.read": 40}}),
                seen(2, call_id="c1", detail={"observations": "odd", "more": ["odd"]}),
                seen(3, ("fs.read", 3), call_id="c2"),
                seen(4, ("net.connect", 1), call_id=None, tool=None),
                event(5, "observed", detail={"phase": "end", "tracer_gone": True, "observations": [7, {"count": "x"}]}),
            ]
        )
        found = await rows(
            events,
            "SELECT tool, capability, observations, calls, first_seen, last_seen FROM server_behaviour ORDER BY 2, 4",
        )
        assert [tuple(row) for row in found] == [
            ("read_file", "fs.read", 45, 2, NOW + 1, NOW + 3),
            (None, "net.connect", 1, 0, NOW + 4, NOW + 4),
            ("read_file", "net.connect", 1, 1, NOW + 1, NOW + 1),
        ]


def test_an_entry_of_the_local_log_is_what_is_stored() -> None:
    assert json.loads(decided(1).body)["event_id"] == "e0001"


class TestSample:
    SLICES = (NOW, NOW + 100, NOW + 200)

    async def test_a_slice_with_little_is_returned_whole(self, events: Events) -> None:
        found = (Finding("secrets.aws", "text", "f"),)
        await events.write([decided(1, redactions=found, rules=("a", "b")), completed(2, 1), event(3, "observed")])
        one, other = await events.sample(Filter(), self.SLICES, 10)
        assert (one.kind, one.tool, one.agent, one.detectors, one.rules) == (
            *("decided", "read_file", "ada", ("secrets.aws",), ("a", "b")),
        )
        assert (other.kind, other.total_ms, other.weight) == ("completed", 4.5, 1.0)
        assert one.is_call
        assert not other.is_call

    async def test_a_slice_with_much_is_weighed_and_hides_nothing_that_was_denied(self, events: Events) -> None:
        batch = [decided(number, decision="deny" if number == 60 else "allow") for number in range(1, 61)]
        await events.write([*batch, decided(150)])
        found = await events.sample(Filter(), self.SLICES, 10)
        denied = [one for one in found if one.decision == "deny"]
        assert [one.weight for one in denied] == [1.0]
        assert sum(one.weight for one in found) == pytest.approx(61)
        assert len(found) == 12

    async def test_it_leaves_out_what_is_outside_or_was_read_from_a_log(self, events: Events) -> None:
        await events.write([decided(number) for number in (1, 50, 250)])
        where = Filter(without=(("log-1", 49),))
        assert [one.time for one in await events.sample(where, self.SLICES, 10)] == [NOW + 1]
