"""Text from servers and agents cannot drive a terminal."""

from __future__ import annotations

import pytest

from proxy.system.printable import printable, printable_lines


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("plain é 猫", "plain é 猫"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\t", "a\\x0ab\\x09"),
        ("\u202e", "\\x202e"),
        (None, ""),
    ],
)
def test_control_characters_are_escaped(sent: object, shown: str) -> None:
    assert printable(sent) == shown


def test_lines_stay_lines() -> None:
    assert printable_lines("a\n\x07b\n") == "a\n\\x07b\n"
