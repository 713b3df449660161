"""A first look at a value: whether anything could be found in it at all.

Pure. Most values hold nothing, and to know that needs no account of what stands where. What is looked at
is the very text that `document.Text` makes and the readings that `decode` gives of it; where a look is not
enough to say that there is nothing, it says nothing, and the whole way is gone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from proxy.redact.decode import MAX_DEPTH, Layer, Root, next_layer
from proxy.redact.json_text import FRAGMENT, MASK_START, PROTOCOL, SMALLEST_NUMBER, WALL, is_protocol_word, spells_text
from proxy.redact.views import escapes_in

if TYPE_CHECKING:
    from proxy.redact.decode import Signs
    from proxy.redact.json_text import Place
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
    """Get the text of `value`, and after a wall that of `part` of it by itself; None where it takes the whole way."""
    reading = _Reading(part)
    try:
        body = reading.container(value if type(value) is dict or type(value) is list else [value], "", _DEEP)
    except (_NotPlainError, ValueError):  # ValueError: a number of more digits than Python will print
        return None
    if len(body) > SMALL:
        return None
    text = _with_joins(body, reading.names, reading.strings)
    if part is None or part is value:
        return text
    if reading.part_body is None:
        alone = flat(part)
        return None if alone is None else text + WALL + alone
    inside = reading.inside
    return text + WALL + _with_joins(reading.part_body, reading.names[inside], reading.strings[inside])


class _NotPlainError(Exception):
    """A value that a look is not enough for."""


class _Reading:
    """The lines of a value, as `document.Text` has them; it gathers the strings, and the name of each."""

    __slots__ = ("_part", "inside", "names", "part_body", "strings")

    def __init__(self, part: Any) -> None:
        self._part = part
        self.names: list[Place] = []
        self.strings: list[str] = []
        self.part_body: str | None = None
        self.inside = slice(0)
        """Which strings are those of the part."""

    def container(self, value: Any, place: Place, depth: int) -> str:
        """Return the lines of an object or array that stands at `place`."""
        if not depth:
            raise _NotPlainError
        first = len(self.strings)
        body = self._object(value, depth - 1) if type(value) is dict else self._array(value, place, depth - 1)
        if value is self._part:
            self.part_body, self.inside = body, slice(first, len(self.strings))
        return body

    def _object(self, value: dict[str, Any], depth: int) -> str:
        lines: list[str] = []
        names, strings = self.names, self.strings
        for key, child in value.items():
            kind = type(child)
            if kind is str:
                lines.append(f'"{key}": "{child}"\n')
                names.append(key)
                strings.append(child)
            elif kind is dict or kind is list:
                lines.append(f'"{key}": {self.container(child, key, depth)}')
            else:
                lines.append(f'"{key}": {_number(child)}')
        return "".join(lines)

    def _array(self, value: list[Any], place: Place, depth: int) -> str:
        if spells_text(value):
            raise _NotPlainError
        lines: list[str] = []
        for index, child in enumerate(value):
            kind = type(child)
            if kind is str:
                lines.append(f'"{child}"\n')
                self.names.append(place)
                self.strings.append(child)
            elif kind is dict or kind is list:
                lines.append(self.container(child, index, depth))
            else:
                lines.append(_number(child))
        return "".join(lines)


def _number(value: Any) -> str:
    """Return the line of what is no string and no container."""
    if value is None or value is False or value is True:
        return ""
    if type(value) is not int and type(value) is not float:
        raise _NotPlainError
    return f"{value!r}\n" if abs(value) >= SMALLEST_NUMBER else ""


def _with_joins(body: str, names: list[Place], strings: list[str]) -> bytes:
    """Get the lines, and after them strings end to end: all but the protocol's own, and those of each shared name."""
    text = body.encode("utf-8", "surrogatepass")
    if len(strings) < 2:
        return text
    kinds = {*names}
    if PROTOCOL.isdisjoint(kinds):
        joins = [strings]
    else:
        joins = [[text for name, text in zip(names, strings, strict=True) if not is_protocol_word(name, text)]]
    if 1 < len(kinds) < len(strings):
        by_name: dict[Place, list[str]] = {name: [] for name in names}
        for name, string in zip(names, strings, strict=True):
            by_name[name].append(string)
        joins += [group for group in by_name.values() if len(group) > 1]
    # What is in one string alone is found there.
    return b"\n".join([text, *[_end_to_end(group) for group in joins if len(group) > 1]])


def _end_to_end(strings: list[str]) -> bytes:
    whole = "".join(strings)
    if whole.isascii() and (len(whole) <= 2 * FRAGMENT or max(map(len, strings)) <= 2 * FRAGMENT):
        return whole.encode()
    return b"".join([_fragment(text) for text in strings])


def _fragment(text: str) -> bytes:
    """Return a string whole, or of a long one both ends."""
    data = text.encode("utf-8", "surrogatepass")
    return data if len(data) <= 2 * FRAGMENT else b"%b\n%b" % (data[:FRAGMENT], data[-FRAGMENT:])
