"""`interlock audit`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.audit.local_log import LOG_FILE, LocalLog
from proxy.core.model import AuditEvent
from tests.commands.conftest import Run, complaint


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
        ["01:00:03.000", "decided", "tool3"],
        ["01:00:04.000", "decided", "tool4"],
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
        assert done.stdout.count(tool) == 3


def test_a_log_that_is_not_there_is_told(run: Run) -> None:
    assert "there is no audit log in" in complaint(run("audit", "tail"))


def test_a_file_that_is_no_log_is_told(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "state" / LOG_FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"garbage " * 500)
    assert "cannot be read as an audit log" in complaint(run("audit", "tail"))


def test_a_number_of_events_is_at_least_one(run: Run) -> None:
    assert run("audit", "tail", "-n", "0").returncode == 2
