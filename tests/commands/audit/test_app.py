"""`interlock audit`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

import pytest

from proxy.audit.local_log import LOG_FILE, LocalLog
from proxy.audit.open_events import open_events
from proxy.commands.audit.app import follow_events
from proxy.config import Settings
from proxy.core.model import AuditEvent
from proxy.system.terminal_text import display_width
from tests.commands.conftest import Run, complaint
from tests.support.audit_fixture import World
from tests.support.terminal_screen import on_screen
from tests.support.trail_fixture import move, write

DOWN = "postgresql://127.0.0.1:1/none"


def record(tmp_path: Path, *events: AuditEvent) -> None:
    log = LocalLog(tmp_path / "state" / LOG_FILE)
    for event in events:
        log.record_later(event)
    log.close()


def event(number: int, **fields: object) -> AuditEvent:
    return AuditEvent(**{"event_id": str(number), "kind": "decided", "time": 3600.0 + number, **fields})  # type: ignore[arg-type]


def test_the_last_events_are_printed_oldest_first(run: Run, tmp_path: Path) -> None:
    record(tmp_path, *(event(number, tool=f"tool{number}", decision="deny", rule="r") for number in range(5)))
    done = run("audit", "tail", "-n", "2")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["1970-01-01", "01:00:03.000", "deny"],
        ["1970-01-01", "01:00:04.000", "deny"],
    ]


def test_json_has_the_whole_event(run: Run, tmp_path: Path) -> None:
    record(tmp_path, event(1, tool="é", arguments={"a": 1}))
    (row,) = map(json.loads, run("audit", "tail", "--json").stdout.splitlines())
    assert (row["tool"], row["arguments"]) == ("é", {"a": 1})


@pytest.mark.parametrize("tool", ["[/red]", "[bold]x", "\x1b[31mred\x1b]0;title\x07", "\u202eevil", "a\nb", "\\[x]"])
def test_what_an_agent_sent_does_not_drive_the_terminal(tool: str, run: Run, tmp_path: Path) -> None:
    record(tmp_path, event(1, tool=tool, agent=tool, reason=tool))
    done = run("audit", "tail")
    assert done.returncode == 0
    assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout)
    assert len(done.stdout.splitlines()) == 2
    if tool.isprintable():
        assert done.stdout.count(tool) == 4


def test_a_log_that_is_not_there_is_told(run: Run) -> None:
    assert "there is no audit log in" in complaint(run("audit", "tail"))


def test_a_file_that_is_no_log_is_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "state" / LOG_FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"garbage " * 500)
    assert "cannot be read as an audit log" in complaint(run("audit", "tail"))


def test_a_number_of_events_is_at_least_one(run: Run) -> None:
    assert run("audit", "tail", "-n", "0").returncode == 2


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Two events in the store, two in the log."""
    folder = tmp_path / "state"

    async def go() -> None:
        write(folder, [1, 2])
        store = open_events(None, folder)
        await move(folder, store)
        await store.close()
        write(folder, [3, 4])

    asyncio.run(go())
    return folder


def test_tail_prints_both(run: Run, state: Path) -> None:
    rows = [json.loads(line) for line in run("audit", "tail", "--json").stdout.splitlines()]
    assert [row["event_id"] for row in rows] == ["e00001", "e00002", "e00003", "e00004"]


def test_tail_shows_what_it_can_where_the_store_is_down(run: Run, state: Path) -> None:
    done = run("audit", "tail", "--json", "--database-url", DOWN)
    assert done.returncode == 0
    assert "Only what is still in the local logs is shown" in done.stderr
    assert len(done.stdout.splitlines()) == 2


async def test_following_gives_each_event_once_wherever_it_is(tmp_path: Path) -> None:
    write(tmp_path, [1, 2])
    World(tmp_path, None).ship()
    write(tmp_path, [3, 4])
    async with contextlib.aclosing(follow_events(Settings(state_dir=tmp_path), 2, pause=0.01)) as batches:
        assert [event["event_id"] for event in await anext(batches)] == ["e00003", "e00004"]
        write(tmp_path, [5])
        assert [event["event_id"] for event in await anext(batches)] == ["e00005"]
        World(tmp_path, None).ship()
        write(tmp_path, [6, 7])
        assert [event["event_id"] for event in await anext(batches)] == ["e00006", "e00007"]


def on_terminal() -> dict[str, str]:
    """Return an environment without the fixture's COLUMNS, which would count for more than the terminal's width."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")} | {
        "TERM": "xterm"
    }


def test_on_a_terminal_of_80_columns_an_event_is_one_line_below_its_date(environment: None, tmp_path: Path) -> None:
    long = {
        "agent": "a" * 40,
        "server": "https://mcp.internal.example.com/v1/mcp",
        "tool": "日本" * 30,
        "rule": "r" * 50,
    }
    record(tmp_path, *(event(number, decision="deny", **long) for number in range(3)), event(4, tool="t\x1b[2J"))
    screen, code = on_screen(["audit", "tail"], on_terminal())
    assert code == 0
    header, day, *rows = screen.lines
    assert header.split()[:3] == ["time", "(UTC)", "what"]
    assert day.strip() == "1970-01-01"
    assert [row[:8] for row in rows] == ["01:00:00", "01:00:01", "01:00:02", "01:00:04"]
    assert all(display_width(line.rstrip()) <= 80 for line in screen.lines)
    assert all(row.count("…") >= 3 and " deny " in row for row in rows[:3])
    assert "t\\x1b[2J" in rows[3]
    assert "\x1b[31mdeny" in screen.raw


def test_no_color_means_none(environment: None, tmp_path: Path) -> None:
    record(tmp_path, event(1, decision="deny"))
    screen, _ = on_screen(["audit", "tail"], on_terminal() | {"NO_COLOR": "1"})
    assert "\x1b[31m" not in screen.raw
    assert " deny" in screen.raw


def test_an_empty_trail_says_what_fills_it(run: Run, tmp_path: Path) -> None:
    record(tmp_path)
    done = run("audit", "tail")
    assert (done.stdout, done.stderr) == ("", "No events yet; they are recorded when agents call through Interlock.\n")
