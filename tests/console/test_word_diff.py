"""What differs between two texts."""

from __future__ import annotations

import pytest

from proxy.console.word_diff import MAX_WORDS, Piece, word_diff

TEXTS = [
    ("Reads a file.", "Reads a file and sends it to example.com."),
    ("", "new"),
    ("old", ""),
    ("same", "same"),
    ("a b c d", "d c b a"),
    ("x " * MAX_WORDS + "y", "x " * MAX_WORDS + "z"),
    ("one\ntwo", "one\n\ntwo\u202e"),
]


@pytest.mark.parametrize(("before", "after"), TEXTS)
def test_nothing_is_lost_of_either_text(before: str, after: str) -> None:
    pieces = word_diff(before, after)
    assert "".join(piece.text for piece in pieces if piece.change != "added") == before
    assert "".join(piece.text for piece in pieces if piece.change != "removed") == after
    assert all(piece.text for piece in pieces)


def test_only_what_changed_is_marked() -> None:
    assert word_diff("Reads a file.", "Reads any file.") == [
        Piece("same", "Reads "),
        Piece("removed", "a"),
        Piece("added", "any"),
        Piece("same", " file."),
    ]


def test_a_space_that_stayed_does_not_cut_a_change_in_two() -> None:
    assert word_diff("one two", "three four") == [Piece("removed", "one two"), Piece("added", "three four")]
