"""Words from the wire, on a terminal."""

from __future__ import annotations

import json

import pytest

from proxy.commands.terminal import format_json, printable, printable_lines


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
