"""Views of a buffer: other readings of its bytes that know where in the buffer they came from. Pure."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, compress
from typing import TYPE_CHECKING, Any, Final

from proxy.redact.detectors import compile_bytes
from proxy.redact.hyperscan_db import AVAILABLE, PatternSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from fractions import Fraction

type Span = tuple[int, int]

# The UTF-8 of characters that pass for ASCII or for nothing, and the rest of their line. Dashes, quotes, arrows and
# CJK are left out: honest text is full of them, and each would have its line folded.
_DISGUISE: Final = compile_bytes(
    r"(?:\xc2[\xaa\xad\xb2\xb3\xb9\xba]|[\xc3-\xd6][\x80-\xbf]|\xe1[\x80-\xbf]{2}"
    r"|\xe2(?:\x80[\x8b-\x92\xaa-\xae]|\x81[\xa0-\xbf]|[\x82\x84\x85\x91-\x93\xa0\xb1][\x80-\xbf])"
    r"|\xe3\x85\xa4|\xea[\x80-\xbf]{2}|\xef[\xb8\xbb-\xbe][\x80-\xbf]|\xf0\x9d[\x80-\xbf]{2}"
    r"|\xf0\x9f[\x84-\x86][\x80-\xbf]|\xf3\xa0[\x80-\xbf]{2})[^\n\x00]*"
)
# Bytes before a disguised or escaped character that go into its view: the plain start of a secret, and its keyword.
_CONTEXT: Final = 80
_BLOCK: Final = 1 << 12
_LARGE: Final = 1 << 16
# In a large text with an escape in so many bytes, or more of them, a look at each costs more than to decode all of it.
_FEW: Final = 1 << 6
# Between decoded segments. Three bytes are one group of base64, so that many segments are decoded in one call, with
# the encoded separator between them.
SEPARATOR: Final = b"\n\n\n"


class View:
    """Another reading of a buffer."""

    data: bytes

    def origin(self, start: int, end: int) -> Span:
        """Return the span of the buffer that the span of this reading came from."""
        return self._origin_of_byte(start)[0], self._origin_of_byte(max(start, end - 1))[1]

    def _origin_of_byte(self, offset: int) -> Span:
        raise NotImplementedError


def part_starts(sizes: Iterable[int]) -> list[int]:
    """Return where each of several parts starts that stand end to end."""
    return list(accumulate(sizes, initial=0))[:-1]


def _stretches(regex: Any, data: bytes, parts: Iterable[Span] = ()) -> Iterator[Span]:
    """Return what `regex` matches, in `parts` if given, with up to `_CONTEXT` bytes before it; none twice."""
    reached = 0
    for part in parts or ((0, len(data)),):
        for match in regex.finditer(data, *part):
            start, end = match.span()
            low = max(reached, start - _CONTEXT)
            reached = end
            yield max(low, data.rfind(b"\n", low, start) + 1, data.rfind(b"\x00", low, start) + 1), end


def _beyond_ascii(data: bytes) -> Iterator[Span]:
    """Return the parts of `data`, in whole lines at their ends, that hold all that is not ASCII."""
    # `isascii` of a block is 25 times as fast as the regex over it, and most of a text is ASCII.
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


class FoldedView(View):
    """The stretches of text that are not plain ASCII, each character replaced as a table says."""

    # Origins are worked out on request: most text has no match to be traced back.

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
    def _starts(self) -> list[int]:
        return part_starts(len(folded) + 1 for folded in self._folded)

    def _origin_of_byte(self, offset: int) -> Span:
        index = bisect_right(self._starts, offset) - 1
        there, run = self._runs[index]
        here = self._starts[index]
        for character in _text_of(run):
            plain = character.isascii()
            width = 1 if plain else _size(character)
            here += 1 if plain else _size(character.translate(self._table))
            if here > offset:
                return there, there + width
            there += width
        return there, there


def _text_of(data: bytes) -> str:
    # Bytes that are not UTF-8 become surrogates, so that sizes stay exact.
    return data.decode("utf-8", "surrogateescape")


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True)
class Escape:
    """One way to write a byte as two hexadecimal digits."""

    marker: bytes
    tail: bytes
    one: re.Pattern[bytes]  # matches one such escape
    run: Any  # matches such an escape and the word that it begins
    small_run: re.Pattern[bytes]  # the same for small texts: Python's own engine is quicker to start, and as linear
    stray: re.Pattern[bytes]  # matches a marker that begins no such escape


def _literal(marker: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in marker)


def _escape(marker: bytes, tail: bytes = b"") -> Escape:
    start, pair = _literal(marker), "[0-9A-Fa-f]{2}" + tail.decode()
    # RE2 has no look-ahead; this one is three bytes at most, so it stays linear.
    stray = re.compile(rf"{start}(?!{pair})".encode())
    one = re.compile(f"{start}{pair}".encode())
    run = rf"{start}{pair}[^\t\n\f\r \"\x00]*"
    return Escape(marker, tail, one, compile_bytes(run), re.compile(run.encode()), stray)


_DIGITS: Final = "0123456789abcdefABCDEF"
# By what follows the marker: a look-up takes two thirds of the time that decoding as Python's escapes takes.
_ENTITIES: Final = {f"{high}{low};".encode(): bytes([int(high + low, 16)]) for high in _DIGITS for low in _DIGITS}
# URLs, C and JSON strings, either of those inside a JSON string, JavaScript's escape(), HTML.
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
    """Return the kinds of escapes that may be in `data`; never leaves out one that is."""
    # Every marker begins with one of these three. Each test is one memchr; a regular expression would take ten times.
    if b"%" not in data and b"\\" not in data and b"&" not in data:
        return []
    # In large data the first escape of a kind comes early, while hyperscan would scan to the end.
    if not AVAILABLE or len(data) > _LARGE:
        return [escape for escape in ESCAPES if escape.marker[:1] in data and escape.run.search(data) is not None]
    return [ESCAPES[index] for index in sorted(_escape_patterns().found(data))]


@cache
def _escape_patterns() -> PatternSet:
    return PatternSet([f"{_literal(escape.marker)}[0-9A-Fa-f]{{2}}{escape.tail.decode()}" for escape in ESCAPES])


class UnescapedView(View):
    """The stretches of text that have escapes of one kind in them, with the escapes decoded."""

    def __init__(self, data: bytes, escape: Escape) -> None:
        self._source = data
        self._escape = escape
        if len(data) > _LARGE and data.count(escape.marker) * _FEW > len(data):
            self._runs = [(0, len(data))]
            # A run has no NUL, and ends where one stands.
            self.data = self._decode(data.replace(b"\x00", b"\n")) + b"\n"
            return
        self._runs = list(_stretches(escape.run if len(data) > _LARGE else escape.small_run, data))
        self.data = b"".join(self._decode(data[start:end]) + b"\n" for start, end in self._runs)

    def _decode(self, run: bytes) -> bytes:
        escape = self._escape
        if escape.tail:
            first, *rest = run.split(escape.marker)
            # Nearly always a piece is one entity and nothing more; else its first three bytes may be one.
            return first + b"".join([_ENTITIES.get(piece) or self._entity(piece) for piece in rest])
        # All at once: they become Python's own escapes. A run has no NUL, so NUL marks them while the backslashes that
        # are text are doubled.
        marked = escape.stray.sub(b"\0-", run).replace(escape.marker, b"\0x").replace(b"\0-", escape.marker)
        return codecs.escape_decode(marked.replace(b"\\", b"\\\\").replace(b"\0", b"\\"))[0]

    def _entity(self, piece: bytes) -> bytes:
        byte = _ENTITIES.get(piece[:3])
        return self._escape.marker + piece if byte is None else byte + piece[3:]

    @cached_property
    def _pieces(self) -> list[tuple[int, int, int]]:
        """Where each piece starts in the view and in the source; for an escape its length, for plain text 0."""
        pieces: list[tuple[int, int, int]] = []
        here = 0
        for there, end in self._runs:
            for match in self._escape.one.finditer(self._source, there, end):
                start, after = match.span()
                pieces += ((here, there, 0), (here + start - there, start, after - start))
                here += start - there + 1
                there = after  # noqa: PLW2901
            pieces.append((here, there, 0))
            here += end - there + 1
        return pieces

    def _origin_of_byte(self, offset: int) -> Span:
        here, there, size = self._pieces[bisect_right(self._pieces, (offset, len(self._source), 0)) - 1]
        start = there + offset - here
        return start, start + (size or 1)


# Three lists and not a list of triples, because a text may have hundreds of thousands.
@dataclass(frozen=True, slots=True)
class Segments:
    """Spans that may be encoded, and the characters of each without padding and line ends."""

    starts: list[int]
    ends: list[int]
    bodies: list[bytes]

    def chosen(self, flags: Sequence[bool]) -> Segments:
        """Return those whose flag is set."""
        if all(flags):
            return self
        starts, ends = (list(compress(each, flags)) for each in (self.starts, self.ends))
        return Segments(starts, ends, list(compress(self.bodies, flags)))


class DecodedView(View):
    """What segments of a buffer decode to, one after the other: `ratio` bytes for each of a body's characters."""

    def __init__(self, segments: Segments, data: bytes, bodies: Sequence[bytes], ratio: Fraction) -> None:
        self._segments = segments
        self.data = data
        self._bodies = bodies
        self._ratio = ratio

    @cached_property
    def _starts(self) -> list[int]:
        above, below = self._ratio.numerator, self._ratio.denominator
        return part_starts(len(body) * above // below + len(SEPARATOR) for body in self._bodies)

    def _origin_of_byte(self, offset: int) -> Span:
        # A byte has no characters of its own in base64 or base32, so its origin is the whole segment.
        index = bisect_right(self._starts, offset) - 1
        return self._segments.starts[index], self._segments.ends[index]


class WithoutNuls(View):
    """Bytes without NULs: UTF-16 that carries plain text becomes that text."""

    def __init__(self, data: bytes) -> None:
        self._pieces = data.split(b"\x00")
        self.data = b"".join(self._pieces)

    @cached_property
    def _starts(self) -> list[int]:
        return part_starts(map(len, self._pieces))

    def _origin_of_byte(self, offset: int) -> Span:
        there = offset + bisect_right(self._starts, offset) - 1  # one NUL before each piece but the first
        return there, there + 1


class ChainedView(View):
    """A view of a view."""

    def __init__(self, upper: View, lower: View) -> None:
        self._upper = upper
        self._lower = lower
        self.data = upper.data

    def origin(self, start: int, end: int) -> Span:
        return self._lower.origin(*self._upper.origin(start, end))
