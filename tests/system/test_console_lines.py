"""Log lines for people."""

from __future__ import annotations

import pytest

from proxy.system.console_lines import format_line
from proxy.system.terminal_text import display_width

LINE = {
    "timestamp": "2026-01-31T18:00:01.234567Z",
    "level": "info",
    "logger": "interlock.gate",
    "event": "decided",
    "call_id": "0198c0de-7d31-7c52-a1b0-5e0d9f1c2a44",
    "agent": "build-bot",
    "server": "mcp.example.com",
    "method": "tools/call",
    "tool": "read_file",
    "decision": "deny",
    "reason": "policy_denied",
    "rule": "default-system-paths",
    "ms": 1.26,
}
LONG = {"agent": "a" * 60, "server": "https://" + "s" * 200, "tool": "日本" * 50, "rule": "r" * 90}


def test_a_decision_tells_the_most_first_and_fits_80_columns() -> None:
    line = format_line(LINE, 80)
    assert line == "18:00:01 deny     build-bot  mcp.example.com  read_file  default-system-paths"


def test_a_method_stands_where_there_is_no_tool_and_a_reason_where_there_is_no_rule() -> None:
    line = format_line(LINE | {"tool": None, "rule": None, "decision": "allow"}, 80)
    assert line.split()[:6] == ["18:00:01", "allow", "build-bot", "mcp.example.com", "tools/call", "policy_denied"]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 132, 200])
@pytest.mark.parametrize("more", [{}, LONG, {"tool": "\x1b[2J\r\n" * 9}, {"agent": None, "server": None}])
def test_a_decision_is_one_line_on_any_terminal(width: int, more: dict[str, str]) -> None:
    line = format_line(LINE | more, width)
    assert display_width(line) <= width
    assert line.isprintable()
    assert line.startswith("18:00:01 deny")


def test_a_wide_terminal_gets_the_rest() -> None:
    assert format_line(LINE, 132).endswith(f"1.3 ms  {LINE['call_id']}")


def test_what_is_cut_keeps_its_beginning_and_end() -> None:
    line = format_line(LINE | {"server": "very-long-host-name.internal.example.com", "tool": "x" * 40}, 80)
    assert line.endswith("  very-lon…ple.com  xxxxxxxx…xxxxxxx  default…m-paths")


def test_away_from_a_terminal_nothing_is_cut() -> None:
    line = format_line(LINE | LONG)
    assert line.startswith("2026-01-31 18:00:01.234")
    assert all(value in line for value in [*LONG.values(), LINE["call_id"], LINE["reason"]])


@pytest.mark.parametrize(("decision", "colour"), [("deny", "31"), ("propose", "33"), ("allow", "32")])
def test_decisions_have_their_colours_and_they_take_no_room(decision: str, colour: str) -> None:
    line = format_line(LINE | LONG | {"decision": decision}, 80, colours=True)
    assert f"\x1b[{colour}m{decision}" in line
    assert line.replace(f"\x1b[{colour}m", "").replace("\x1b[0m", "") == format_line(
        LINE | LONG | {"decision": decision}, 80
    )


def test_other_lines_have_their_level_and_what_they_say_in_quotes_where_it_has_blanks() -> None:
    line = {
        "timestamp": "2026-01-31T18:00:01Z",
        "level": "error",
        "event": "worker ended",
        "why": "exit code 1",
        "n": 2,
    }
    assert format_line(line, 80) == "18:00:01 error    worker ended  why='exit code 1' n=2"


def test_hostile_text_drives_no_terminal() -> None:
    line = {"event": "a\x1b[2J", "level": "error", "error": "x\ny\x07", "exception": "Trace\n\x1b]0;t\x07"}
    shown = format_line(line, 80, colours=False)
    assert not {"\x1b", "\x07"} & set(shown)
    assert len(shown.splitlines()) == 3
