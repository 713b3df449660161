"""Finds a call's argument values in what was touched: whole, or as a number in a name. Pure."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_VALUES = 64
MAX_SHAPES = 1024
MIN_TEXT = 3
MAX_NAME = 200
MAX_DEPTH = 8
# A number that is everywhere, such as 0 or 443, says nothing; one in a place where arguments stand does.
PLAIN_NUMBER = 1000
ENOUGH_SEEN = 4
OFTEN = 0.9
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class ArgumentHints:
    """What to look for: texts, and numbers that are too short to be looked for everywhere."""

    texts: tuple[str, ...] = ()
    numbers: frozenset[str] = frozenset()

    def longest_in(self, touched: str) -> int:
        """Return the length of the longest text that `touched` names, from edge to edge of a word; 0 for none."""
        return max((len(text) for text in self.texts if text in touched and _is_whole(text, touched)), default=0)


NONE = ArgumentHints()


def hints_in(arguments: Any) -> ArgumentHints:
    """Return what to look for of a call's arguments."""
    texts, numbers = dict[str, None](), dict[str, None]()
    for value in _values(arguments):
        if value.isdecimal() and len(value) < len(str(PLAIN_NUMBER)):
            numbers[value] = None
        elif len(value) >= MIN_TEXT:
            texts[value] = None
            numbers |= dict.fromkeys(_NUMBER.findall(value[-MAX_NAME:]))
    return ArgumentHints(tuple(texts)[:MAX_VALUES], frozenset(list(numbers)[:MAX_VALUES]))


def _is_whole(text: str, touched: str) -> bool:
    """Return whether a text stands in `touched` without being part of a longer word: file-1 is not in file-12."""
    at = touched.find(text)
    while at >= 0:
        before, after = touched[at - 1 : at], touched[at + len(text) : at + len(text) + 1]
        if not (_joins(before, text[0]) or _joins(text[-1], after)):
            return True
        at = touched.find(text, at + 1)
    return False


def _joins(left: str, right: str) -> bool:
    """Return whether two characters belong to one word."""
    return (left.isdecimal() and right.isdecimal()) or (left.isalpha() and right.isalpha())


def _values(value: Any, depth: int = 0) -> Iterator[str]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _values(item, depth + 1)
    elif isinstance(value, str):
        yield value
        yield from _parts(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(abs(value))


def _parts(value: str) -> Iterator[str]:
    """Yield the host of a URL, and the part of a relative path that stays when it is made absolute."""
    if "://" in value:
        try:
            host = urlsplit(value).hostname
        except ValueError:
            host = None
        if host:
            yield host
        return
    if value.startswith(("./", "~/")):
        yield value[1:]
    # What is made from a file is often named after it: /in/report.pdf, /out/report.txt.
    if "/" in value and len(stem := value.rpartition("/")[2].partition(".")[0]) > MIN_TEXT:
        yield stem


class NumberPlaces:
    """Learns in which places of names the numbers of arguments stand: `/data/user-17/page-3` by its shape.

    A place counts once nearly every number seen there was an argument of a call that was open.
    """

    def __init__(self) -> None:
        self._places: OrderedDict[str, list[list[int]]] = OrderedDict()  # by shape: for each place, seen and fitting

    def learn(self, path: str, open_calls: Iterable[ArgumentHints]) -> None:
        numbers = _NUMBER.findall(path)
        if not numbers:
            return
        known = frozenset[str]().union(*(call.numbers for call in open_calls))
        if not known:
            return
        shape = _NUMBER.sub("#", path)
        places = self._places.setdefault(shape, [[0, 0] for _ in numbers])
        self._places.move_to_end(shape)
        if len(self._places) > MAX_SHAPES:
            self._places.popitem(last=False)
        for place, number in zip(places, numbers, strict=True):
            place[0] += 1
            place[1] += number in known

    def fitting(self, path: str, calls: Sequence[ArgumentHints]) -> list[int]:
        """Return which of `calls` have the numbers of a path in the places where arguments stand."""
        places = self._places.get(_NUMBER.sub("#", path))
        if places is None:
            return []
        shares = [fits / seen if seen >= ENOUGH_SEEN else 0.0 for seen, fits in places]
        best = max(shares)
        # The step of a loop is the number of some call now and then; the place where arguments stand, always.
        numbers = zip(_NUMBER.findall(path), shares, strict=True)
        sure = [number for number, share in numbers if share == best >= OFTEN]
        return [at for at, call in enumerate(calls) if sure and all(number in call.numbers for number in sure)]
