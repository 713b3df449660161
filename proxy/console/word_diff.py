"""What differs between two texts, word by word. Pure."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_WORDS: Final = 1500  # of each text: the time that a comparison takes grows with the square of it
_WORDS: Final = re.compile(r"\s+|\w+|[^\w\s]")


class Piece(NamedTuple):
    change: Literal["same", "removed", "added"]
    text: str


def word_diff(before: str, after: str) -> list[Piece]:
    """Return the pieces of both texts in order: without those added it is `before`, without those removed `after`."""
    return list(_joined(_pieces(before, after)))


def _pieces(before: str, after: str) -> Iterator[Piece]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if len(old) > MAX_WORDS or len(new) > MAX_WORDS:
        yield Piece("same" if before == after else "removed", before)
        if before != after:
            yield Piece("added", after)
        return
    for kind, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            yield Piece("same", "".join(old[start:end]))
        else:
            yield Piece("removed", "".join(old[start:end]))
            yield Piece("added", "".join(new[new_start:new_end]))


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield pieces without the empty ones. A lone space that stayed is no reason to cut a change in two."""
    pending: dict[str, str] = {"removed": "", "added": ""}
    for change, text in pieces:
        if change != "same":
            pending[change] += text
        elif text.isspace() and any(pending.values()):
            pending = {name: part + text for name, part in pending.items()}
        else:
            yield from _flushed(pending)
            pending = {"removed": "", "added": ""}
            yield Piece("same", text)
    yield from _flushed(pending)


def _flushed(pending: dict[str, str]) -> Iterator[Piece]:
    if pending["removed"]:
        yield Piece("removed", pending["removed"])
    if pending["added"]:
        yield Piece("added", pending["added"])
