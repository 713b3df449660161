"""Text in the room that a terminal's line has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.system.terminal_text import display_width, fit_widths, padded, printable, printable_lines, shorten


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("abc", 3), ("é", 1), ("e\u0301", 1), ("日本", 4), ("🚀", 2), ("\uff57", 2), ("❤\ufe0f", 2)],
)
def test_a_text_is_as_wide_as_a_terminal_shows_it(text: str, width: int) -> None:
    assert display_width(text) == width


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abc…fg"),
        ("/home/alice/notes.txt", 9, "/hom….txt"),
        ("日本日本", 5, "日…本"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_a_long_text_is_cut_in_the_middle_and_says_so(text: str, width: int, shown: str) -> None:
    assert shorten(text, width) == shown


@given(st.text(), st.integers(0, 40))
def test_no_text_is_wider_than_its_room_and_none_acts_on_a_terminal(text: str, width: int) -> None:
    safe = printable(text)
    assert safe.isprintable()
    assert display_width(shorten(safe, width)) <= width


@given(st.lists(st.integers(0, 60), max_size=7), st.integers(-5, 120))
def test_columns_fit_and_only_the_widest_give_way(wanted: list[int], room: int) -> None:
    widths = fit_widths(wanted, room)
    assert sum(widths) <= max(room, 0)
    if sum(wanted) <= room:
        assert widths == wanted
    cut = [width for width, want in zip(widths, wanted, strict=True) if width < want]
    whole = [width for width, want in zip(widths, wanted, strict=True) if width == want]
    # What is cut has still at least the room of what is whole, but for what is lost in rounding.
    assert not cut or not whole or min(cut) + 1 >= max(whole)


def test_blanks_fill_a_column_by_what_is_seen() -> None:
    assert padded("日", 4) == "日  "
    assert padded("abcd", 2) == "abcd"


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
