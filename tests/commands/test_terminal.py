"""Words from the wire, on a terminal."""

from __future__ import annotations

import pytest

from proxy.commands.terminal import printable, printable_lines


@pytest.mark.parametrize(
    ("value", "shown"),
    [("plain é", "plain é"), (None, ""), (5, "5"), ("\x1b[31mred\n", "\\x1b[31mred\\x0a"), ("a\u202eb", "a\\x202eb")],
)
def test_a_terminal_shows_every_character_and_obeys_none(value: object, shown: str) -> None:
    assert printable(value) == shown


def test_lines_stay_lines() -> None:
    assert printable_lines("one\n\x1b[2Jtwo\r\n") == "one\n\\x1b[2Jtwo\\x0d\n"
