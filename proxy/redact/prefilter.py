"""A quick proof that a value holds nothing to mask.

Pure. Most values hold nothing, and to know that needs no account of what stands where. It is a proof and no guess,
because the same text is scanned that `json_text.ScanText` makes (tested byte for byte), by the same detectors, through
the same layers of `decode`. Wherever this module would need more than that, it decides nothing, and `_Masking` runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.redact.decode import MAX_DEPTH, EncodingSigns, Layer, RootLayer, next_layer
from proxy.redact.json_text import (
    BARRIER,
    FRAGMENT,
    MASK_START,
    PROTOCOL,
    SMALLEST_NUMBER,
    PathStep,
    is_protocol_word,
    is_text_as_codes,
)
from proxy.redact.views import escapes_in

if TYPE_CHECKING:
    from proxy.redact.scan import Candidates, Match, Scanner

SMALL: Final = 1 << 20
"""Characters past which a value is not examined here: where it does hold something, it would be scanned twice."""
_DEEP: Final = 32
_MASK: Final = re.compile(MASK_START.encode())


class FirstScan(NamedTuple):
    """What was found in the text of a value as it is, so that the full run need not scan that again."""

    data: bytes
    candidates: Candidates
    matches: list[Match]


def is_surely_clean(
    value: Any, chosen: frozenset[int], scanner: Scanner, limits: tuple[int, int], part: Any = None
) -> bool:
    """Return True where none of the `chosen` detectors would find anything in `value`, or run into a limit there.

    Nor would they in `part` of it taken by itself. All that it decodes to may be its length times the first
    of `limits`, and the second of them more; for a part, however short, the second. False decides nothing.
    """
    return prove_clean(value, chosen, scanner, limits, part) is True


def prove_clean(
    value: Any, chosen: frozenset[int], scanner: Scanner, limits: tuple[int, int], part: Any = None
) -> bool | FirstScan:
    """Return what `is_surely_clean` does; what was found, where that is why the value is not clean."""
    data = scan_text(value, part)
    if data is None:
        return False
    is_known = chosen.isdisjoint(scanner.unproven)
    growth, slack = limits
    # A part by itself has a smaller budget: what fits the budget of the whole might be a limit for the part.
    budget = slack if part is not None else growth * len(data) + slack
    layer: Layer | None = None
    depth = 0
    while True:
        budget -= len(data)
        # Past the budget the full run reports a limit, so this is not "clean".
        if budget < 0:
            return False
        candidates = scanner.prescan(data, chosen)
        signs = scanner.signs(candidates) if candidates else scanner.signs_of_none
        # The full run blanks masks, which changes what stands beside them; only that run can tell.
        if not depth and signs.masks and _MASK.search(data) is not None:
            return False
        # Strictly, because bait elsewhere in the value must not use up the work that the part by itself would get.
        if not chosen.isdisjoint(candidates):
            matches = scanner.confirm(data, chosen, candidates, strictly=part is not None)
            if matches:
                return FirstScan(data, candidates, matches) if not depth and part is None else False
        # The end of the proof: the full run decodes no deeper, or there is nothing to decode that could matter.
        if depth == MAX_DEPTH or (is_known and is_noise(data, signs, scanner, is_text=not depth)):
            return True
        layer = next_layer(layer or RootLayer(data), data, signs, budget)
        if layer is None:
            return True
        data = layer.data
        depth += 1


def is_noise(data: bytes, signs: EncodingSigns, scanner: Scanner, *, is_text: bool) -> bool:
    """Return True where nothing is encoded in `data`, or nothing but what proven detectors find nothing in.

    Nothing encoded there has `LEAST_TEXT` bytes of text in a row. False: unknown.
    """
    # These three cover every view that `next_layer` makes beside base64: hex lines, folding, escapes.
    if signs.hex_lines or (is_text and not data.isascii()) or escapes_in(data):
        return False
    return not signs.base64_runs or scanner.is_noise(data)


def scan_text(value: Any, part: Any = None) -> bytes | None:
    """Return the text of `value`, and after a barrier that of `part` of it by itself; None for the full run."""
    builder = _TextBuilder(part)
    try:
        body = builder.container(value if type(value) is dict or type(value) is list else [value], "", _DEEP)
    except (_NotPlainError, ValueError):  # ValueError: a number of more digits than Python will print
        return None
    if len(body) > SMALL:
        return None
    text = _with_joins(body, builder.names, builder.strings)
    if part is None or part is value:
        return text
    if builder.part_body is None:  # a copy, or a string: it was not met as an object on the way
        alone = scan_text(part)
        return None if alone is None else text + BARRIER + alone
    inside = builder.inside
    return text + BARRIER + _with_joins(builder.part_body, builder.names[inside], builder.strings[inside])


class _NotPlainError(Exception):
    """A value that only the full run can judge."""


class _TextBuilder:
    """Builds the lines of a value as `ScanText` has them; collects the strings, and the name of each."""

    __slots__ = ("_part", "inside", "names", "part_body", "strings")

    def __init__(self, part: Any) -> None:
        self._part = part
        self.names: list[PathStep] = []
        self.strings: list[str] = []
        self.part_body: str | None = None
        self.inside = slice(0)  # which strings are those of the part

    def container(self, value: Any, step: PathStep, depth: int) -> str:
        """Return the lines of an object or array that stands under `step`."""
        # Unlike `Document` this recurses, so it gives up long before Python would.
        if not depth:
            raise _NotPlainError
        first = len(self.strings)
        body = self._object(value, depth - 1) if type(value) is dict else self._array(value, step, depth - 1)
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

    def _array(self, value: list[Any], step: PathStep, depth: int) -> str:
        # The first test of `is_text_as_codes`, here because most arrays are of objects.
        if value and type(value[0]) is int and is_text_as_codes(value):
            raise _NotPlainError
        lines: list[str] = []
        for index, child in enumerate(value):
            kind = type(child)
            if kind is str:
                lines.append(f'"{child}"\n')
                self.names.append(step)
                self.strings.append(child)
            elif kind is dict or kind is list:
                lines.append(self.container(child, index, depth))
            else:
                lines.append(_number(child))
        return "".join(lines)


def _number(value: Any) -> str:
    """Return the line of a number; nothing for a small one, a boolean or null."""
    if value is None or value is False or value is True:
        return ""
    if type(value) is not int and type(value) is not float:
        raise _NotPlainError
    return f"{value!r}\n" if abs(value) >= SMALLEST_NUMBER else ""


def _with_joins(body: str, names: list[PathStep], strings: list[str]) -> bytes:
    """Return the lines, and after them strings end to end: all but the protocol's own, and those of each name."""
    text = body.encode("utf-8", "surrogatepass")
    if len(strings) < 2:
        return text
    kinds = {*names}
    if PROTOCOL.isdisjoint(kinds):
        joins = [strings]
    else:
        joins = [[text for name, text in zip(names, strings, strict=True) if not is_protocol_word(name, text)]]
    if 1 < len(kinds) < len(strings):
        by_name: dict[PathStep, list[str]] = {name: [] for name in names}
        for name, string in zip(names, strings, strict=True):
            by_name[name].append(string)
        joins += [group for group in by_name.values() if len(group) > 1]
    # What is in one string alone is found there.
    return b"\n".join([text, *[_end_to_end(group) for group in joins if len(group) > 1]])


def _end_to_end(strings: list[str]) -> bytes:
    whole = "".join(strings)
    if whole.isascii() and (len(whole) <= 2 * FRAGMENT or max(map(len, strings)) <= 2 * FRAGMENT):
        return whole.encode()
    encoded = [text.encode("utf-8", "surrogatepass") for text in strings]
    # Long strings with both ends alone, as `ScanText` joins them.
    return b"".join([d if len(d) <= 2 * FRAGMENT else b"%b\n%b" % (d[:FRAGMENT], d[-FRAGMENT:]) for d in encoded])
