"""Folding text to the ASCII that it passes for: invisible characters, compatibility forms, lookalikes.

Pure. Folding works character by character, so that every byte of the folded text has exactly one origin.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Letters and marks by their category, but drawn as nothing: fillers of Hangul, Braille's empty cell, the joiner.
_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f")

_UNSEEN: Final = frozenset({"Mn", "Me", "Cf"})

# Letters of other scripts that look like Latin ones, and signs that look like ASCII signs.
_LETTERS: Final = "АВСЕНІЈКМОРЅТХҮаеорсухіјѕԁһԛԝӏгпԌԚԜҐցոսօԼՏΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορτυχϲϳγηƖɑɡıȷƧƅ"
_LATIN: Final = "ABCEHIJKMOPSTXYaeopcyxijsdhqwlrnGQWTgnuoLSABEZHIKMNOPTYXaikvoptuxcjynIagijSb"
_SIGNS: Final = "\u2113\u2215\u2044\u2236\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u00b7\u2024"
_ASCII: Final = "l//:-------.."
_LOOKALIKES: Final = dict(zip(_LETTERS + _SIGNS, _LATIN + _ASCII, strict=True))
# The first and last of each range, and the plain character that the first stands for.
_SMUGGLERS: Final = ((0xE0020, 0xE007E, 0x20), (0xFE00, 0xFE0F, 0), (0xE0100, 0xE01EF, 16))


def fold_character(character: str) -> str:
    """Return the plain characters that `character` passes for; nothing for an invisible one."""
    if character in _FILLERS:
        return ""
    # Decomposed, not composed: an accent then is a character of its own, and dropped like other marks (Mn, Me) and
    # format characters (Cf: zero-width, bidirectional, tags) that would stand between the letters of a secret.
    parts = [part for part in unicodedata.normalize("NFKD", character) if unicodedata.category(part) not in _UNSEEN]
    return "".join(_LOOKALIKES.get(part, part) for part in parts)


def reveal_character(character: str) -> str:
    """Return the plain character that a tag character or variation selector smuggles, else itself."""
    code = ord(character)
    offsets = (first - plain for first, last, plain in _SMUGGLERS if first <= code <= last)
    return chr(code - next(offsets, 0))


class _Table(dict[int, str]):
    """A translation table that fills itself."""

    def __init__(self, replace: Callable[[str], str]) -> None:
        super().__init__()
        self._replace = replace

    def __missing__(self, code: int) -> str:
        folded = self[code] = self._replace(chr(code)) if code > 127 else chr(code)
        return folded


FOLD: Final = _Table(fold_character)
REVEAL: Final = _Table(reveal_character)

SMUGGLING: Final = b"\xf3\xa0"  # how tag characters and supplementary variation selectors begin in UTF-8
