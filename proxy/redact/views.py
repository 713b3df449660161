"""Readings of a text, each of which knows where in the text it came from.

Pure.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, compress
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxy.redact.detectors import compile_bytes
from proxy.redact.hyperscan_db import AVAILABLE, Expressions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from fractions import Fraction

type Span = tuple[int, int]

# What passes for ASCII or for nothing. Dashes, quotes, arrows and CJK, of which honest
# text is full, are not worth a look.
_DISGUISE: Final = compile_bytes(
    r"(?:\xc2[\xaa\xad\xb2\xb3\xb9\xba]|[\xc3-\xd6][\x80-\xbf]|\xe1[\x80-\xbf]{2}"
    r"|\xe2(?:\x80[\x8b-\x92\xaa-\xae]|\x81[\xa0-\xbf]|[\x82\x84\x85\x91-\x93\xa0\xb1][\x80-\xbf])"
    r"|\xe3\x85\xa4|\xea[\x80-\xbf]{2}|\xef[\xb8\xbb-\xbe][\x80-\xbf]|\xf0\x9d[\x80-\xbf]{2}"
    r"|\xf0\x9f[\x84-\x86][\x80-\xbf]|\xf3\xa0[\x80-\xbf]{2})[^\n\x00]*"
)
_CONTEXT: Final = 80
_BLOCK: Final = 1 << 12
_LARGE: Final = 1 << 16
SEPARATOR: Final = b"\n\n\n"


class View(Protocol):
    """One other reading of a buffer."""

    @property
    def data(self) -> bytes:
        """The reading."""
        ...

    def origin(self, start: int, end: int) -> Span:
        """Return the span of the buffer that the span of this reading came from."""
        ...


def _stretches(regex: Any, data: bytes, parts: Iterable[Span] = ()) -> Iterator[Span]:
    """Return what `regex` matches with up to `_CONTEXT` bytes of the line before, none twice.

    Where `parts` are given, matches begin in them alone.
    """
    reached = 0
    for part in parts or ((0, len(data)),):
        for match in regex.finditer(data, *part):
            start, end = match.span()
            low = max(reached, start - _CONTEXT)
            reached = end
            yield max(low, data.rfind(b"\n", low, start) + 1, data.rfind(b"\x00", low, start) + 1), end


def _beyond_ascii(data: bytes) -> Iterator[Span]:
    """Return the parts of `data`, in whole lines at their ends, that hold all that is not ASCII."""
    low = high = 0
    for start in range(0, len(data), _BLOCK):
        if data[start : start + _BLOCK].isascii():
            continue
        if start > high:
            if high:
                yield low, high
            low = start
        if start + _BLOCK > high:
            line_end = data.find(b"\n", start + _BLOCK)
            high = line_end if line_end >= 0 else len(data)
    if high:
        yield low, high


class Folded:
    """The stretches of text that are not plain ASCII, through a character table.

    Places are worked out when asked for: most text has nothing to be placed.
    """

    def __init__(self, data: bytes, table: Mapping[int, str]) -> None:
        self._table = table
        self._runs: list[tuple[int, bytes]] = []
        self._folded: list[bytes] = []
        for start, end in _stretches(_DISGUISE, data, _beyond_ascii(data)):
            run = data[start:end]
            folded = _text_of(run).translate(table).encode("utf-8", "surrogateescape")
            if folded != run:
                self._runs.append((start, run))
                self._folded.append(folded)
        self.data = b"\n".join(self._folded)

    @cached_property
    def _offsets(self) -> list[int]:
        return [0, *accumulate(len(folded) + 1 for folded in self._folded)]

    def origin(self, start: int, end: int) -> Span:
        return self._place(start)[0], self._place(max(start, end - 1))[1]

    def _place(self, offset: int) -> Span:
        index = min(bisect_right(self._offsets, offset), len(self._runs)) - 1
        there, run = self._runs[index]
        here = self._offsets[index]
        for character in _text_of(run):
            plain = character.isascii()
            width = 1 if plain else _size(character)
            here += 1 if plain else _size(character.translate(self._table))
            if here > offset:
                return there, there + width
            there += width
        return there, there


def _text_of(data: bytes) -> str:
    # Bytes that are no UTF-8 travel as surrogates, so that sizes stay exact.
    return data.decode("utf-8", "surrogateescape")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True)
class Escape:
    """One way to write a byte as two hexadecimal digits."""

    marker: bytes
    tail: bytes
    run: Any
    """Matches such an escape and the word that it begins."""

    small_run: re.Pattern[bytes]
    """The same for small texts, where Python's own engine is quicker to start, and as linear."""

    stray: Any
    """Matches a marker that begins no such escape."""

    plain: dict[bytes, bytes]
    """What each pair of digits with the tail stands for."""

    @property
    def width(self) -> int:
        """How many bytes write one."""
        return len(self.marker) + 2 + len(self.tail)


_HEX_PAIRS: Final = {
    (high + low).encode(): bytes([int(high + low, 16)])
    for high in "0123456789abcdefABCDEF"
    for low in "0123456789abcdefABCDEF"
}


def _escape(marker: bytes, tail: bytes = b"") -> Escape:
    start, pair = "".join(f"\\x{byte:02x}" for byte in marker), "[0-9A-Fa-f]{2}" + tail.decode()
    plain = {pair + tail: byte for pair, byte in _HEX_PAIRS.items()}
    # The look ahead is three bytes at most: as linear as RE2, which has none.
    stray = re.compile(rf"{start}(?!{pair})".encode())
    run = rf"{start}{pair}[^\t\n\f\r \"\x00]*"
    return Escape(marker, tail, compile_bytes(run), re.compile(run.encode()), stray, plain)


ESCAPES: Final = (
    _escape(b"%"),
    _escape(b"\\x"),
    _escape(b"\\u00"),
    _escape(b"\\\\x"),
    _escape(b"\\\\u00"),
    _escape(b"%u00"),
    _escape(b"&#x", b";"),
)


def escapes_in(data: bytes) -> list[Escape]:
    """Return the kinds of escapes that may be in `data`.

    In large data the first of a kind is soon found, and hyperscan would stop at every other one.
    """
    if b"%" not in data and b"\\" not in data and b"&" not in data:
        return []
    if not AVAILABLE or len(data) > _LARGE:
        return [escape for escape in ESCAPES if escape.marker[:1] in data and escape.run.search(data) is not None]
    return [ESCAPES[index] for index in sorted(_kinds().found(data))]


@cache
def _kinds() -> Expressions:
    starts = ["".join(f"\\x{byte:02x}" for byte in escape.marker) for escape in ESCAPES]
    return Expressions(
        [f"{start}[0-9A-Fa-f]{{2}}{escape.tail.decode()}" for start, escape in zip(starts, ESCAPES, strict=True)]
    )


def _unescaped(run: bytes, escape: Escape) -> bytes:
    """Return `run`, in which there is no NUL, with the escapes undone, all of them at once.

    They become escapes of Python's; NUL stands for their backslash while that of the text is doubled.
    """
    marked = escape.stray.sub(b"\0-", run).replace(escape.marker, b"\0x").replace(b"\0-", escape.marker)
    return codecs.escape_decode(marked.replace(b"\\", b"\\\\").replace(b"\0", b"\\"))[0]


class Unescaped:
    """The stretches of text that have escapes of one kind in them, with the escapes undone."""

    def __init__(self, data: bytes, escape: Escape) -> None:
        self._source = data
        self._escape = escape
        self._runs = list(_stretches(escape.run if len(data) > _LARGE else escape.small_run, data))
        self.data = b"".join(self._undone(data[start:end]) + b"\n" for start, end in self._runs)

    def _undone(self, run: bytes) -> bytes:
        if not self._escape.tail:
            return _unescaped(run, self._escape)
        first, *rest = run.split(self._escape.marker)
        plain, piece_of = self._escape.plain.get, self._piece
        return b"".join([first, *[plain(piece) or piece_of(piece)[0] for piece in rest]])

    def _piece(self, piece: bytes) -> tuple[bytes, bool]:
        """Return what follows a marker with the escape undone, and whether it was one."""
        byte = self._escape.plain.get(piece[: self._escape.width - len(self._escape.marker)])
        if byte is None:
            return self._escape.marker + piece, False
        return byte + piece[self._escape.width - len(self._escape.marker) :], True

    def _split(self, run: bytes) -> list[tuple[bytes, bool]]:
        """Return the pieces of a run, each with whether it begins with an escape that was undone."""
        first, *rest = run.split(self._escape.marker)
        return [(first, False), *map(self._piece, rest)]

    @cached_property
    def _pieces(self) -> list[tuple[int, int, bool]]:
        """Where each piece is in the reading and in the source, and whether it was undone."""
        pieces = []
        here = 0
        for start, end in self._runs:
            there = start
            for piece, undone in self._split(self._source[start:end]):
                pieces.append((here, there, undone))
                here += len(piece)
                there += len(piece) + (self._escape.width - 1 if undone else 0)
            here += 1
        return pieces

    def origin(self, start: int, end: int) -> Span:
        return self._place(start)[0], self._place(max(start, end - 1))[1]

    def _place(self, offset: int) -> Span:
        here, there, undone = self._pieces[bisect_right(self._pieces, (offset, len(self._source), True)) - 1]
        into = offset - here
        if not undone:
            return there + into, there + into + 1
        width = self._escape.width
        return (there, there + width) if not into else (there + width + into - 1, there + width + into)


@dataclass(frozen=True, slots=True)
class Segments:
    """Spans that may be encoded, and the characters of each without what wraps them.

    Three lists, because a text may have hundreds of thousands.
    """

    starts: list[int]
    ends: list[int]
    bodies: list[bytes]

    def chosen(self, flags: Sequence[bool]) -> Segments:
        """Return those whose flag is set."""
        if all(flags):
            return self
        return Segments(
            list(compress(self.starts, flags)), list(compress(self.ends, flags)), list(compress(self.bodies, flags))
        )


class Decoded:
    """What segments of a buffer decode to, one after the other: `ratio` bytes for each of a body's characters."""

    def __init__(self, segments: Segments, data: bytes, bodies: Sequence[bytes], ratio: Fraction) -> None:
        self._segments = segments
        self.data = data
        self._bodies = bodies
        self._ratio = ratio

    @cached_property
    def _offsets(self) -> list[int]:
        above, below = self._ratio.numerator, self._ratio.denominator
        return [0, *accumulate(len(body) * above // below + len(SEPARATOR) for body in self._bodies)]

    def origin(self, start: int, end: int) -> Span:
        first, last = self._index(start), self._index(max(start, end - 1))
        return self._segments.starts[first], self._segments.ends[last]

    def _index(self, offset: int) -> int:
        return min(bisect_right(self._offsets, offset), len(self._bodies)) - 1


class Dropped:
    """Bytes without NULs: UTF-16 that carries plain text becomes that text."""

    def __init__(self, data: bytes) -> None:
        self._pieces = data.split(b"\x00")
        self.data = b"".join(self._pieces)

    @cached_property
    def _offsets(self) -> list[int]:
        return [0, *accumulate(map(len, self._pieces))]

    def origin(self, start: int, end: int) -> Span:
        return self._place(start), self._place(max(start, end - 1)) + 1

    def _place(self, offset: int) -> int:
        return offset + min(bisect_right(self._offsets, offset), len(self._pieces)) - 1


class Chained:
    """A reading of a reading."""

    def __init__(self, upper: View, lower: View) -> None:
        self._upper = upper
        self._lower = lower
        self.data = upper.data

    def origin(self, start: int, end: int) -> Span:
        return self._lower.origin(*self._upper.origin(start, end))
