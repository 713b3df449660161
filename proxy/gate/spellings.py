"""Other ways to read a text that somebody wrote so that a search finds nothing in it. Pure.

The redactor itself undoes base64, hexadecimal, base32, percent signs, escapes and look-alikes. Here are those that it
leaves alone, because a mask could not be put back into them: pieces with marks between them, a text backwards or in
ROT13, and escapes in decimal or octal.
"""

from __future__ import annotations

import codecs
import html
import quopri
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST: Final = 1 << 13
SHORTEST_SEGMENT: Final = 6
_ENTITY: Final = re.compile(r"&#\d{2,4};(?:[^&]{0,2}&#\d{2,4};){3}")
_OCTAL: Final = re.compile(r"(?:\\[0-7]{3}){6,}")
_PRINTABLE: Final = re.compile(r"(?:=[0-9A-Fa-f]{2}){6,}")
_PIECE: Final = r"[A-Za-z0-9+/=_]"
_MARK: Final = r"[-. :,|;~*]"
# Pieces of one length with a mark between them, and a last one that may be shorter.
_PIECES: Final = re.compile(
    "|".join(
        rf"(?<!{_PIECE})(?:{_PIECE}{{{size}}}{_MARK}){{{max(4, 12 // size)},}}{_PIECE}{{1,{size}}}(?!{_PIECE})"
        for size in (1, 2, 3, 4, 5, 6, 8)
    )
)
# The same by the kind of each character: a search for a literal is a hundred times as fast.
_SIZES: Final = (1, 2, 3, 4, 5, 6, 8)
_KINDS: Final = bytes(
    ord("a") if re.match(_PIECE, chr(byte)) else ord("-") if re.match(_MARK, chr(byte)) else ord("\n")
    for byte in range(256)
)
_CUTS: Final = tuple((b"a" * size + b"-") * max(4, 12 // size) + b"a" for size in _SIZES)
_MARKS: Final = re.compile(_MARK)
_ELEMENT: Final = re.compile(r"<([A-Za-z][\w.:-]*)[^>]*>([^<]{4,200})</")
# A phrase of words, each in its line, with its number or without.
_LINES: Final = re.compile(r"(?:\s*(?:\d{1,2}[.:)]\s*)?[a-z]{3,8}[ \t\r]*\n){11,23}\s*(?:\d{1,2}[.:)]\s*)?[a-z]{3,8}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9+/=_-]{16,}")


def may_be_respelt(text: str) -> bool:
    """Return False where `other_spellings` has nothing to say of any part of a text; cheap, for most texts."""
    return (
        "&#" in text
        or "\\" in text
        or text.startswith("<")
        or "\n<" in text
        or _PRINTABLE.search(text) is not None
        or any(any(c.isdigit() for c in token) for token in _TOKEN.findall(text))
        or _may_be_cut(text)
        or (text.count("\n") >= 11 and _LINES.search(text) is not None)
    )


def other_spellings(text: str) -> Iterator[str]:
    """Return what else a text may say; of a text longer than `LONGEST`, nothing."""
    if len(text) > LONGEST:
        return
    if "&#" in text and _ENTITY.search(text):
        yield html.unescape(text)
    if "\\" in text and (found := _OCTAL.findall(text)):
        yield from (bytes(int(code, 8) & 255 for code in run.split("\\")[1:]).decode("latin-1") for run in found)
    if "=" in text and (found := _PRINTABLE.findall(text)):
        yield from (quopri.decodestring(run.encode()).decode("latin-1") for run in found)
    if text.startswith("<") and (pairs := _ELEMENT.findall(text)):
        yield "\n".join(f"{name} = {value}" for name, value in pairs)
    if "\n" in text:
        yield from (" ".join(found.group().split()) for found in _LINES.finditer(text))
    if _may_be_cut(text):
        yield from (_MARKS.sub("", found.group()) for found in _PIECES.finditer(text))
    for token in _TOKEN.findall(text):
        if any(c.isdigit() for c in token):
            yield token[::-1]
            yield codecs.encode(token, "rot13")


def _may_be_cut(text: str) -> bool:
    kinds = text.encode("latin-1", "replace").translate(_KINDS)
    return any(cut in kinds for cut in _CUTS)


def joined_segments(path: str) -> str:
    """Return the segments of a path that may be pieces of one text, put together; none where fewer than two may be."""
    pieces = [piece for piece in path.split("/") if len(piece) >= SHORTEST_SEGMENT and any(c.isdigit() for c in piece)]
    return "".join(pieces) if len(pieces) > 1 else ""
