"""A first look at a small value: whether anything could be found in it at all.

Pure. Most values hold nothing, and to know that needs no account of what stands where. What is looked at
is the very text that `document.Text` makes and the readings that `decode` gives of it; where a look is not
enough to say that there is nothing, it says nothing, and the whole way is gone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from proxy.redact.decode import MAX_DEPTH, Layer, Root, next_layer
from proxy.redact.document import FRAGMENT, SMALLEST_NUMBER, is_protocol_word, spells_text

if TYPE_CHECKING:
    from proxy.redact.document import Place
    from proxy.redact.scan import Scanner

SMALL: Final = 1 << 13
"""Characters past which a value is not small."""
_DEEP: Final = 16
# A mask, or an escape of any kind that `views.ESCAPES` has.
_SPECIAL: Final = re.compile(r"\\|%[0-9A-Fa-f]{2}|%u00|&#x|\[(?:secret|pii|custom):")


def nothing_in(value: Any, chosen: frozenset[int], scanner: Scanner, limits: tuple[int, int], part: Any = None) -> bool:
    """Say that none of the `chosen` detectors would find anything in `value`, or run into a limit there.

    Nor would they in `part` of it taken by itself: its strings end to end are looked at too. All that it decodes to may
    be its length times the first of `limits`, and the second of them more. False says nothing: there may be something.
    """
    text = _Flat().read(value)
    if part is not None and part is not value and text is not None:
        text += _Flat().joined(part) or ""
    if text is None or not text.isascii() or _SPECIAL.search(text) is not None:
        return False
    layer: Layer | None = Root(text.encode())
    growth, slack = limits
    budget = growth * len(text) + slack
    for depth in range(MAX_DEPTH + 1):
        assert layer is not None
        budget -= len(layer.data)
        if budget < 0:
            return False
        survey = scanner.survey(layer.data)
        if not chosen.isdisjoint(survey) and scanner.settled(layer.data, chosen, survey):
            return False
        layer = next_layer(layer, layer.data, scanner.signs(survey)) if depth < MAX_DEPTH else None
        if layer is None:
            return True
    return True


class _TooMuchError(Exception):
    """A value that is not small."""


class _Flat:
    """The text of a small value, as `document.Text` makes it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._strings: list[tuple[Place, str, bool]] = []
        self._room = SMALL

    def read(self, value: Any) -> str | None:
        """Give the text; None where the value is not small."""
        try:
            self._add(value, "", "", _DEEP)
        except (_TooMuchError, ValueError):  # ValueError: a number of more digits than Python will print
            return None
        return "".join([*self._lines, *self._joins()])

    def joined(self, value: Any) -> str:
        """Give the strings of part of a small value, end to end."""
        self._add(value, "", "", _DEEP)
        return "".join(self._joins())

    def _add(self, value: Any, place: Place, above: Place, depth: int) -> None:
        if isinstance(value, str):
            self._spend(len(value))
            name = place if isinstance(place, str) else above
            self._lines.append(f'"{value}"\n')
            self._strings.append((name, value, is_protocol_word(name, value)))
        elif isinstance(value, dict):
            self._spend(len(value), depth)
            for key, child in value.items():
                self._spend(len(key))
                self._lines.append(f'"{key}": ')
                self._add(child, key, place, depth - 1)
        elif isinstance(value, list):
            self._spend(len(value), depth)
            if spells_text(value):
                raise _TooMuchError
            for index, child in enumerate(value):
                self._add(child, index, place, depth - 1)
        elif value and abs(value) >= SMALLEST_NUMBER:
            self._lines.append(f"{value!r}\n")

    def _spend(self, size: int, depth: int = 1) -> None:
        self._room -= size
        if self._room < 0 or depth == 0:
            raise _TooMuchError

    def _joins(self) -> list[str]:
        strings = self._strings
        if len(strings) < 2:
            return []
        by_name: dict[Place, list[str]] = {}
        for name, text, _ in strings:
            by_name.setdefault(name, []).append(text)
        groups = [[text for _, text, is_word in strings if not is_word]]
        if len(by_name) > 1:
            groups += [group for group in by_name.values() if len(group) > 1]
        return ["\n" + "".join(map(_fragment, group)) for group in groups]


def _fragment(text: str) -> str:
    """Give a string whole, or of a long one both ends. Counted in characters: what is not ASCII goes the whole way."""
    return text if len(text) <= 2 * FRAGMENT else f"{text[:FRAGMENT]}\n{text[-FRAGMENT:]}"
