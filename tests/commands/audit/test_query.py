"""`interlock audit query | show`, on SQLite and Postgres alike, wherever the events are at the time."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from proxy.commands.audit.query import LEAST_TELLING, doubts, print_calls
from proxy.core.event import CallRecord
from tests.commands.conftest import Run, complaint
from tests.support.audit_fixture import NOW, TRAIL, World, event
from tests.support.postgres import Postgres

WANTED = {"call_id", "time", "agent", "server", "tool", "decision", "reason", "rule", "outcome"}
FILTERS: list[tuple[list[str], str]] = [
    (["--agent", "bob"], "3"),
    (["--agent", "*"], "431"),
    (["--server", "*.example", "--tool", "p*"], "4"),
    (["--tool", "read_file"], "1"),
    (["--decision", "deny"], "3"),
    (["--decision", "propose"], ""),
    (["--rule", "no-shell"], "3"),
    (["--arg", "path=/etc/hosts"], "1"),
    (["--arg", "options.depth=3", "--arg", "path=/etc/hosts"], "1"),
    (["--arg", "options.depth=3", "--arg", "path=/other"], ""),
    (["--since", "2025-11-13T02:13:23Z"], "43"),
    (["--until", "2025-11-13T02:13:23Z"], "1"),
    (["--limit", "2"], "43"),
]


def rows(run: Run, world: World, *arguments: str) -> list[dict[str, Any]]:
    done = run("audit", *arguments, "--json", *world.flags)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def ids(run: Run, world: World, *arguments: str) -> list[str]:
    return [row["call_id"].removeprefix("call-000") for row in rows(run, world, "query", *arguments)]


class TestQuery:
    def test_calls_come_newest_first_with_how_they_ended(self, run: Run, trail: World) -> None:
        found = rows(run, trail, "query")
        assert all(row.keys() >= WANTED for row in found)
        assert [(row["call_id"], row["decision"], row["outcome"], row["is_error"]) for row in found] == [
            ("call-0004", "allow", "done", True),
            ("call-0003", "deny", None, None),
            ("call-0001", "allow", "done", False),
        ]
        assert (found[0]["time"], found[0]["total_ms"]) == (NOW + 4, 90.0)

    def test_every_filter_chooses(self, run: Run, trail: World) -> None:
        for arguments, expected in FILTERS:
            assert (arguments, ids(run, trail, *arguments)) == (arguments, list(expected))

    def test_pages_meet_without_a_gap_or_a_repetition(
        self, run: Run, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("proxy.commands.audit.query.PAGE", 3)
        world.record(*(event(number, time=NOW + number // 4) for number in range(1, 12)))
        world.ship()
        world.record(*(event(number, time=NOW + number // 4) for number in range(12, 20)))
        found = [row["call_id"] for row in rows(run, world, "query")]
        assert found == [f"call-{number:04}" for number in range(19, 0, -1)]
        assert [row["call_id"] for row in rows(run, world, "query", "--limit", "7")] == found[:7]

    def test_a_table_has_a_row_for_each_call(self, run: Run, trail: World) -> None:
        done = run("audit", "query", *trail.flags)
        assert done.returncode == 0
        lines = done.stdout.splitlines()
        assert [line.split()[-1] for line in lines] == ["call", "call-0004", "call-0003", "call-0001"]
        assert "no-shell" in lines[2]
        assert done.stderr == "3 calls\n"
        assert "there may be more" in run("audit", "query", "--limit", "1", *trail.flags).stderr

    @pytest.mark.parametrize("tool", ["[/red]", "[bold]x", "\x1b[31mred\x1b]0;t\x07", "\u202eevil", "a\nb", ":smile:"])
    def test_what_an_agent_sent_does_not_drive_the_terminal(self, tool: str, run: Run, world: World) -> None:
        world.record(event(1, tool=tool, agent=tool, rule=tool, arguments={"x": tool}))
        for arguments in (["query"], ["show", "call-0001"], ["stats"]):
            done = run("audit", *arguments, *world.flags)
            assert done.returncode == 0
            assert not {"\x1b", "\x07", "\u202e", "😄"} & set(done.stdout)
            if tool.isprintable():
                assert tool in done.stdout

    def test_colours_are_for_terminals(self, run: Run, trail: World) -> None:
        assert "\x1b[31mdeny" in run("audit", "query", *trail.flags, FORCE_COLOR="1", TERM="xterm").stdout


class TestShow:
    @pytest.mark.parametrize("wanted", ["call-0001", "event-0002", "call-0001-not"])
    def test_a_call_is_shown_event_by_event(self, run: Run, trail: World, wanted: str) -> None:
        if wanted.endswith("-not"):
            assert "no call or event has an id" in complaint(run("audit", "show", wanted, *trail.flags))
            return
        expected = ["event-0002"] if wanted.startswith("event") else ["event-0001", "event-0002"]
        assert [event["event_id"] for event in rows(run, trail, "show", wanted)] == expected
        text = run("audit", "show", wanted, *trail.flags).stdout
        assert all(name in text for name in expected)

    def test_all_of_an_event_is_shown(self, run: Run, trail: World) -> None:
        text = run("audit", "show", "call-0001", *trail.flags).stdout
        assert text.index("decided") < text.index("completed")
        assert '"path": "/etc/hosts"' in text
        assert "2025-11-13 02:13:21.250 UTC" in text

    def test_the_beginning_of_an_id_is_enough_where_it_is_the_only_one(self, run: Run, world: World) -> None:
        world.record(event(1, call_id="01a08d7c-9f00-7abc"), event(2, call_id="01a08d7c-9f11-7abc"))
        world.ship()
        world.record(event(3, call_id="01a08d7c-9f11-7bbb"))
        assert rows(run, world, "show", "01a08d7c-9f00")[0]["event_id"] == "event-0001"
        assert rows(run, world, "show", "01a08d7c-9f11-7b")[0]["event_id"] == "event-0003"
        message = complaint(run("audit", "show", "01a08d7c-9f11", *world.flags))
        assert "01a08d7c-9f11-7abc, 01a08d7c-9f11-7bbb" in message
        assert "at least 8 characters" in complaint(run("audit", "show", "01a08d7", *world.flags))

    def test_a_clock_that_jumped_back_does_not_turn_the_order_round(self, run: Run, world: World) -> None:
        world.record(event(1, time=NOW), event(2, "completed", call_id="call-0001", time=NOW - 3600))
        assert [one["kind"] for one in rows(run, world, "show", "call-0001")] == ["decided", "completed"]


class TestErrors:
    def test_a_trail_that_is_not_there_is_told(self, run: Run) -> None:
        for arguments in (["query"], ["show", "12345678"], ["stats"], ["export"]):
            assert "there is no audit log in" in complaint(run("audit", *arguments))

    def test_a_filter_that_cannot_be_read_is_told(self, run: Run) -> None:
        assert "write 7d" in complaint(run("audit", "query", "--since", "yesterday"))
        assert "options.depth=3" in complaint(run("audit", "query", "--arg", "path"))
        assert run("audit", "query", "--decision", "perhaps").returncode == 2

    def test_a_database_that_cannot_be_reached_is_told(self, run: Run, tmp_path) -> None:
        url = f"postgresql://postgres@/x?host={tmp_path}"
        for arguments in (["query"], ["show", "12345678"], ["stats"], ["export"], ["prune", "--before", "1d", "--yes"]):
            assert "cannot be used" in complaint(run("audit", *arguments, "--database-url", url))

    def test_a_schema_that_is_behind_is_told_with_the_way_out(self, run: Run, postgres: Postgres) -> None:
        url = postgres.new_database(migrated=False)
        assert "interlock db migrate" in complaint(run("audit", "query", "--database-url", url))

    def test_a_log_that_cannot_be_read_is_told(self, run: Run, world: World) -> None:
        world.record(*TRAIL)
        (world.state_dir / "log" / "run-1.db").write_bytes(b"garbage " * 500)
        assert "cannot be read as an audit log" in complaint(run("audit", "query", *world.flags))


CALL_ID = "0198c0de-7d31-7c52-a1b0-5e0d9f1c2a44"
KNOWN = {
    "call_id": CALL_ID,
    "time": NOW,
    "agent": "build-bot",
    "server": "mcp.example.com",
    "tool": "transfer_funds",
    "decision": "deny",
    "reason": "policy_denied",
    "rule": "no-system-files",
    "outcome": "done",
    "total_ms": 12.5,
}
CALL = CallRecord(**dict.fromkeys(CallRecord.__dataclass_fields__) | KNOWN)  # type: ignore[arg-type]


def shown(width: int, *, terminal: bool = True) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    print_calls([CALL], console)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_a_wide_terminal_and_a_pipe_have_every_column_whole() -> None:
    for text in (shown(200), shown(40, terminal=False)):
        header, row = text.splitlines()
        assert all(name in header for name in LEAST_TELLING)
        assert CALL_ID in row


@pytest.mark.parametrize(("width", "gone"), [(140, 0), (130, 1), (120, 2), (112, 3), (98, 4)])
def test_a_narrow_terminal_has_one_line_a_call_and_loses_what_tells_least_first(width: int, gone: int) -> None:
    header, row = shown(width).splitlines()
    assert [name in header.split() for name in LEAST_TELLING] == [False] * gone + [True] * (4 - gone)
    assert CALL_ID[:13] in row
    assert CALL_ID not in row
    assert all(word in row for word in ("transfer_funds", "deny", "policy_denied", "no-system-files"))


def test_what_may_belong_to_another_call_is_said() -> None:
    sure = {"action": "open", "path": "/a"}
    guess = {"action": "open", "path": "/b", "confidence": 0.125, "how": "window", "candidates": ["me", "you"]}
    late = {"action": "connect", "peer": "h:1", "confidence": 0.6, "how": "process"}
    event = {"call_id": "me", "detail": {"observations": [sure, guess, late, "odd"]}}
    assert list(doubts(event)) == ["open /b: 12% by window, or it was you", "connect h:1: 60% by process"]
    found = {
        "call_id": "me",
        "detail": {"seen": {"action": "open", "path": "/c"}, "confidence": 0.9, "how": "argument"},
    }
    assert list(doubts(found)) == ["open /c: 90% by argument"]
    assert list(doubts({"detail": None})) == []
