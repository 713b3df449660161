"""A first look at a value: whether anything could be found in it at all.

Pure. Most values hold nothing, and to know that needs no account of what stands where. What is looked at
is the very text that `document.Text` makes and the readings that `decode` gives of it; where a look is not
enough to say that there is nothing, it says nothing, and the whole way is gone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from proxy.redact.decode import MAX_DEPTH, Layer, Root, next_layer
from proxy.redact.document import FRAGMENT, MASK_START, PROTOCOL, SMALLEST_NUMBER, WALL, is_protocol_word, spells_text
from proxy.redact.views import escapes_in

if TYPE_CHECKING:
    from proxy.redact.decode import Signs
    from proxy.redact.document import Place
    from proxy.redact.scan import Scanner

SMALL: Final = 1 << 20
"""Characters past which a value is not for a look: that there is something costs it twice."""
_DEEP: Final = 32
_MASK: Final = re.compile(MASK_START.encode())


def nothing_in(value: Any, chosen: frozenset[int], scanner: Scanner, limits: tuple[int, int], part: Any = None) -> bool:
    """Say that none of the `chosen` detectors would find anything in `value`, or run into a limit there.

    Nor would they in `part` of it taken by itself. All that it decodes to may be its length times the first
    of `limits`, and the second of them more; of a part, however short, the second. False says nothing: there
    may be something.
    """
    data = flat(value, part)
    if data is None:
        return False
    is_known = chosen.isdisjoint(scanner.unproven)
    growth, slack = limits
    budget = slack if part is not None else growth * len(data) + slack
    layer: Layer | None = Root(data)
    depth = 0
    while layer is not None:
        data = layer.data
        budget -= len(data)
        if budget < 0:
            return False
        survey = scanner.survey(data)
        signs = scanner.signs(survey)
        if not depth and signs.masks and _MASK.search(data) is not None:
            return False
        # Bait elsewhere must not use up the looks that a part by itself would get.
        if not chosen.isdisjoint(survey) and scanner.settled(data, chosen, survey, strictly=part is not None):
            return False
        if depth == MAX_DEPTH or (is_known and _is_noise(data, signs, scanner, is_text=not depth)):
            return True
        layer = next_layer(layer, data, signs)
        depth += 1
    return True


def _is_noise(data: bytes, signs: Signs, scanner: Scanner, *, is_text: bool) -> bool:
    """Say that nothing is encoded in `data`, or nothing but what proven detectors find nothing in."""
    if signs.hex_lines or (is_text and not data.isascii()) or escapes_in(data):
        return False
    return not signs.base64_runs or scanner.is_noise(data)


def flat(value: Any, part: Any = None) -> bytes | None:
    """Give the text of `value`, and after a wall that of `part` of it by itself; None where it takes the whole way."""
    flattening = _Flattening(part)
    try:
        if type(value) is dict:
            flattening.add_object(value, _DEEP)
        else:
            flattening.add_array(value if type(value) is list else [value], "", _DEEP)
    except (_NotPlainError, ValueError):  # ValueError: a number of more digits than Python will print
        return None
    if flattening.size() > SMALL:
        return None
    if part is None or part is value:
        return flattening.text()
    if flattening.inside is None:
        alone = flat(part)
        return None if alone is None else flattening.text() + WALL + alone
    return flattening.text() + WALL + flattening.text(*flattening.inside)


class _NotPlainError(Exception):
    """A value that a look is not enough for."""


class _Flattening:
    """The lines of a value, as `document.Text` has them, and its strings with their names."""

    def __init__(self, part: Any) -> None:
        self._part = part
        self._lines: list[str] = []
        self._strings: list[tuple[Place, str]] = []
        self.inside: tuple[slice, slice] | None = None
        """Which lines and which strings are those of the part."""

    def add_object(self, value: dict[str, Any], depth: int) -> None:
        if not depth:
            raise _NotPlainError
        lines, strings = self._lines, self._strings
        for key, child in value.items():
            kind = type(child)
            if kind is str:
                lines.append(f'"{key}": "{child}"\n')
                strings.append((key, child))
            elif kind is dict or kind is list:
                lines.append(f'"{key}": ')
                self._enter(child, key, depth)
            elif kind is int and -SMALLEST_NUMBER < child < SMALLEST_NUMBER:
                lines.append(f'"{key}": ')
            else:
                lines.append(f'"{key}": {_number(child)}')

    def add_array(self, value: list[Any], place: Place, depth: int) -> None:
        if not depth or spells_text(value):
            raise _NotPlainError
        lines, strings = self._lines, self._strings
        for index, child in enumerate(value):
            kind = type(child)
            if kind is str:
                lines.append(f'"{child}"\n')
                strings.append((place, child))
            elif kind is dict or kind is list:
                self._enter(child, index, depth)
            else:
                lines.append(_number(child))

    def _enter(self, child: Any, place: Place, depth: int) -> None:
        if child is self._part:
            line, string = len(self._lines), len(self._strings)
        if type(child) is dict:
            self.add_object(child, depth - 1)
        else:
            self.add_array(child, place, depth - 1)
        if child is self._part:
            self.inside = slice(line, len(self._lines)), slice(string, len(self._strings))

    def size(self) -> int:
        """Give how many characters the lines have."""
        return sum(map(len, self._lines))

    def text(self, lines: slice = slice(None), strings: slice = slice(None)) -> bytes:
        """Give the text, or what it would be of some of the lines and strings."""
        body = "".join(self._lines[lines]).encode("utf-8", "surrogatepass")
        return b"".join([body, *_joined(self._strings[strings])])


def _number(value: Any) -> str:
    """Give the line of what is no string and no container."""
    if value is None or value is False or value is True:
        return ""
    if type(value) is not int and type(value) is not float:
        raise _NotPlainError
    return f"{value!r}\n" if abs(value) >= SMALLEST_NUMBER else ""


def _joined(strings: list[tuple[Place, str]]) -> list[bytes]:
    """Give the strings end to end: all but the protocol's own words, and those of each name that several have."""
    if len(strings) < 2:
        return []
    names = {name for name, _ in strings}
    if PROTOCOL.isdisjoint(names):
        groups = [[text for _, text in strings]]
    else:
        groups = [[text for name, text in strings if name not in PROTOCOL or not is_protocol_word(name, text)]]
    if 1 < len(names) < len(strings):
        by_name: dict[Place, list[str]] = {name: [] for name, _ in strings}
        for name, text in strings:
            by_name[name].append(text)
        groups += [group for group in by_name.values() if len(group) > 1]
    return [b"\n" + _end_to_end(group) for group in groups]


def _end_to_end(strings: list[str]) -> bytes:
    whole = "".join(strings)
    if whole.isascii() and (len(whole) <= 2 * FRAGMENT or max(map(len, strings)) <= 2 * FRAGMENT):
        return whole.encode()
    return b"".join([_fragment(text) for text in strings])


def _fragment(text: str) -> bytes:
    """Give a string whole, or of a long one both ends."""
    data = text.encode("utf-8", "surrogatepass")
    return data if len(data) <= 2 * FRAGMENT else b"%b\n%b" % (data[:FRAGMENT], data[-FRAGMENT:])
