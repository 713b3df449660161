"""Words from the wire, on a terminal."""

from __future__ import annotations

import json

import pytest

from proxy.commands.terminal import (
    escaped,
    format_json,
    print_json_lines,
    print_note,
    print_table,
    printable,
    printable_lines,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [("plain é", "plain é"), (None, ""), (5, "5"), ("\x1b[31mred\n", "\\x1b[31mred\\x0a"), ("a\u202eb", "a\\x202eb")],
)
def test_a_terminal_shows_every_character_and_obeys_none(value: object, shown: str) -> None:
    assert printable(value) == shown


def test_lines_stay_lines() -> None:
    assert printable_lines("one\n\x1b[2Jtwo\r\n") == "one\n\\x1b[2Jtwo\\x0d\n"


def test_json_is_one_line_that_no_terminal_obeys() -> None:
    value = {"a\u2028": "\x1b[2J\x9b2J\u202e\ud800 é\x7f\ufeff"}
    text = format_json(value)
    assert text.replace("é", "").isascii()
    assert text.isprintable()
    assert json.loads(text) == value


def test_a_servers_name_is_shown_whole_and_drives_no_terminal() -> None:
    assert escaped("a\x1b[31m\u202e[red]") == "a\\u001b[31m\\u202e[red]"


def test_a_table_prints_markup_as_it_is_and_something_else_where_it_is_empty(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("name", "state"), [("[red]x[/]", ":warning:")], "Nothing yet.")
    assert "[red]x[/]" in (out := capsys.readouterr().out)
    assert ":warning:" in out
    print_table(("name", "state"), [], "Nothing yet.")
    assert capsys.readouterr().out == "Nothing yet.\n"


def test_notes_go_to_stderr_and_results_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    print_note("Approved: [all]")
    print_json_lines([{"a": 1}, {"b": 2}])
    assert capsys.readouterr() == ('{"a": 1}\n{"b": 2}\n', "Approved: [all]\n")
