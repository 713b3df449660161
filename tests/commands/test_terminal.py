"""Words from the wire, on a terminal."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from proxy.commands.terminal import (
    LineTable,
    count,
    error_object,
    escaped,
    format_json,
    print_error,
    print_json_lines,
    print_note,
    print_pairs,
    print_table,
    printable,
    printable_lines,
)
from proxy.system.terminal_text import display_width


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


@pytest.mark.parametrize(("number", "said"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls")])
def test_one_is_not_several(number: int, said: str) -> None:
    assert count(number, "call") == said
    assert count(number, "entry", "entries") == said.replace("calls", "entries").replace("call", "entry")


def test_a_table_in_a_pipe_is_never_folded_or_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "text"), [("a", "word " * 100)], title="Title")
    LineTable(("name", "text")).print([("a", "x" * 500)])
    print_pairs([("name", "y" * 300)])
    out = capsys.readouterr().out
    assert "x" * 500 in out
    assert "y" * 300 in out
    assert len(out.splitlines()) == 6


def terminal(width: int) -> Console:
    return Console(width=width, force_terminal=True, color_system=None)


def shown(table: LineTable, *rows: tuple[str, ...]) -> list[str]:
    table.console.file = io.StringIO()
    table.print(rows)
    return [line.rstrip() for line in table.console.file.getvalue().splitlines()]


def test_rows_are_one_line_each_and_the_columns_of_later_batches_stand_below_the_first() -> None:
    table = LineTable(
        ("id", "name", "why"), whole=("id",), console=Console(width=40, force_terminal=True, color_system=None)
    )
    header, row = shown(table, ("0198c0de-7d31", "n", "w"))
    (later,) = shown(table, ("0198c0de-7d32", "name" * 20, "why" * 30))
    assert [header.index("name"), row.index("n"), later.index("name")] == [15, 15, 15]
    assert "0198c0de-7d32" in later
    assert "…" in later
    assert display_width(later) <= 40


@pytest.mark.parametrize("width", [1, 5, 20])
def test_a_terminal_that_is_too_narrow_for_anything_still_has_one_line_a_row(width: int) -> None:
    table = LineTable(
        ("id", "name"), whole=("id",), console=Console(width=width, force_terminal=True, color_system=None)
    )
    assert len(shown(table, ("0198c0de-7d31", "日本" * 20))) == 2


@pytest.mark.parametrize(
    ("message", "error", "hint"),
    [
        ("no proxy runs on /x; start one with `interlock up`", "no proxy runs on /x", "start one with `interlock up`"),
        ("it broke", "it broke", None),
        ("there is no target 'a; b'", "there is no target 'a; b'", None),
        ("'a; b' is no age; write `sleep 1; ls`", "'a; b' is no age", "write `sleep 1; ls`"),
        ("the operator's token; see x; or y", "the operator's token; see x", "or y"),
    ],
)
def test_an_error_as_json_is_what_is_wrong_and_the_way_out(message: str, error: str, hint: str | None) -> None:
    assert error_object(message) == {"error": error, "hint": hint}


def test_an_error_is_one_line_of_json_that_no_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("a\x1b[2J\nb; c\u202e", as_json=True)
    err = capsys.readouterr().err
    assert err.endswith("\n")
    assert err[:-1].isprintable()
    assert json.loads(err) == {"error": "a\x1b[2J\nb", "hint": "c\u202e"}
