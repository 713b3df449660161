"""Text for a terminal: harmless, as wide as it is shown, and cut to the room that a line has. Pure."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ELLIPSIS = "…"
_WIDE = frozenset("WF")
_MARKS = frozenset({"Mn", "Me"})
# Makes an emoji of the character before it: terminals differ in whether that takes a column more.
_EMOJI = "\ufe0f"


def printable(value: Any) -> str:
    """Return text from a server or agent with control characters escaped: they could drive the reader's terminal."""
    text = str(value or "")
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def printable_lines(value: Any) -> str:
    """Return `printable` text, with its line breaks kept."""
    return "\n".join(map(printable, str(value or "").split("\n")))


def display_width(text: str) -> int:
    """Return how many columns a terminal needs for printable text."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if character != _EMOJI and unicodedata.category(character) in _MARKS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1


def shorten(text: str, width: int) -> str:
    """Return the text in at most `width` columns: where it is longer, an ellipsis stands for its middle."""
    if display_width(text) <= width:
        return text
    room = width - 1
    if room < 0:
        return ""
    # The beginning tells as much as the end: of paths and tools it is the end, of rules and hosts the beginning.
    return _head(text, room - room // 2) + ELLIPSIS + _head(text[::-1], room // 2)[::-1]


def _head(text: str, width: int) -> str:
    for at, character in enumerate(text):
        width -= _columns(character)
        if width < 0:
            return text[:at]
    return text


def fit_widths(wanted: Sequence[int], room: int) -> list[int]:
    """Return a width for each column so that all fit into `room`: the narrow ones whole, the others equal shares."""
    widths = list(wanted)
    by_width = sorted(range(len(widths)), key=widths.__getitem__)
    for number, column in enumerate(by_width):
        widths[column] = min(widths[column], max(0, room) // (len(widths) - number))
        room -= widths[column]
    return widths


def padded(text: str, width: int) -> str:
    """Return the text with blanks behind it, so that it takes `width` columns."""
    return text + " " * (width - display_width(text))


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 call`, `2 calls`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
