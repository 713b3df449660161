"""Seeing through the look of text: invisible characters, compatibility forms, lookalikes.

Pure. Folding works character by character, so that every place in the folded text has
exactly one place in the original.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f")

# Letters of other scripts that look like Latin ones, and signs that look like ASCII signs.
_LETTERS: Final = "АВСЕНІЈКМОРЅТХҮаеорсухіјѕԁһԛԝӏгпԌԚԜҐցոսօԼՏΑΒΕΖΗΙΚΜΝΟΡΤΥΧαικνορτυχϲϳγηƖɑɡıȷƧƅ"
_LATIN: Final = "ABCEHIJKMOPSTXYaeopcyxijsdhqwlrnGQWTgnuoLSABEZHIKMNOPTYXaikvoptuxcjynIagijSb"
_SIGNS: Final = "\u2113\u2215\u2044\u2236\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u00b7\u2024"
_ASCII: Final = "l//:-------.."
_LOOKALIKES: Final = dict(zip(_LETTERS + _SIGNS, _LATIN + _ASCII, strict=True))


def fold_character(character: str) -> str:
    """Return the plain characters that `character` passes for; none where it is invisible."""
    if character in _FILLERS:
        return ""
    folded = []
    for part in unicodedata.normalize("NFKD", character):
        if unicodedata.category(part) in {"Mn", "Me", "Cf"}:
            continue
        folded.append(_LOOKALIKES.get(part, part))
    return "".join(folded)


def reveal_character(character: str) -> str:
    """Return the plain character that a tag character or variation selector smuggles, else itself."""
    code = ord(character)
    if 0xE0020 <= code <= 0xE007E:
        return chr(code - 0xE0000)
    if 0xFE00 <= code <= 0xFE0F:
        return chr(code - 0xFE00)
    if 0xE0100 <= code <= 0xE01EF:
        return chr(code - 0xE0100 + 16)
    return character


class _Table(dict[int, str]):
    """A translation table that fills itself."""

    def __init__(self, reveal: bool) -> None:  # noqa: FBT001
        super().__init__()
        self._character = reveal_character if reveal else fold_character

    def __missing__(self, code: int) -> str:
        folded = self[code] = self._character(chr(code)) if code > 127 else chr(code)
        return folded


FOLD: Final = _Table(reveal=False)
REVEAL: Final = _Table(reveal=True)

SMUGGLING: Final = b"\xf3\xa0"
"""How tag characters and supplementary variation selectors begin in UTF-8."""
