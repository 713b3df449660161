"""Other readings of a text: folded, unescaped, and what encoded segments in it decode to.

Pure. Each reading knows which span of the text below it a span of its own came from, so a
finding three encodings deep still says what to mask. Work is bounded: `MAX_DEPTH` layers,
and together no more than `GROWTH` times the text plus `SLACK` bytes.
"""

from __future__ import annotations

import binascii
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from proxy.redact.detectors import compile_bytes
from proxy.redact.fold import FOLD, REVEAL, SMUGGLING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_DEPTH: Final = 3
GROWTH: Final = 24
SLACK: Final = 1 << 20

type Span = tuple[int, int]

# What passes for ASCII or for nothing. Dashes, quotes, arrows and CJK, of which honest
# text is full, are not worth a look.
_DISGUISE: Final = compile_bytes(
    r"(?:\xc2[\xaa\xad\xb2\xb3\xb9\xba]|[\xc3-\xd6][\x80-\xbf]|\xe1[\x80-\xbf]{2}"
    r"|\xe2(?:\x80[\x8b-\x92\xaa-\xae]|\x81[\xa0-\xbf]|[\x82\x84\x85\x91-\x93\xa0\xb1][\x80-\xbf])"
    r"|\xe3\x85\xa4|\xea[\x80-\xbf]{2}|\xef[\xb8\xbb-\xbe][\x80-\xbf]|\xf0\x9d[\x80-\xbf]{2}"
    r"|\xf0\x9f[\x84-\x86][\x80-\xbf]|\xf3\xa0[\x80-\xbf]{2})[^\n\x00]*"
)
_BASE64: Final = compile_bytes(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_HEX: Final = compile_bytes("[0-9A-Fa-f]{26,}")
_SPACED_HEX: Final = compile_bytes(
    r"(?:[0-9A-Fa-f]{2}[\s:,;-]{1,2}(?:0x)?){12}(?:[0-9A-Fa-f]{2}[\s:,;-]{0,2}(?:0x)?)*"
)
_BASE32: Final = compile_bytes("[A-Z2-7]{22,}={0,6}|[a-z2-7]{22,}={0,6}")
_LINE_BREAK: Final = compile_bytes(r"[ \t]{0,4}(?:\r?\n|(?:\\{1,8}r)?\\{1,8}n)[ \t]{0,16}")
# Of a written-out `\\n` the letter belongs to the alphabet, and so to the segment after it.
_WRITTEN_BREAK: Final = compile_bytes(r"(?:\\{1,8}r)?\\{1,8}")
_LAST_LINE: Final = compile_bytes(r"[A-Za-z0-9+/_-]{1,19}={0,2}")
_UTF16: Final = compile_bytes(r"(?:[\x20-\x7e]\x00){8}|(?:\x00[\x20-\x7e]){8}")

_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
_NOT_HEX: Final = bytes(set(range(256)) - set(_HEX_DIGITS))
_SHORTEST_HEX: Final = 26
_CONTEXT: Final = 80
_LONGEST_BREAK: Final = 24
_LONG: Final = 1 << 14
_PADDING: Final = (b"", b"AAA", b"AA", b"A")
_SEPARATOR: Final = b"\n\n\n"
_SEPARATOR_BASE64: Final = binascii.b2a_base64(_SEPARATOR, newline=False)
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_BASE32_DIGITS: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789abcdefghijklmnopqrstuv"
)


class View(Protocol):
    """One other reading of a buffer."""

    @property
    def data(self) -> bytes:
        """The reading."""
        ...

    def origin(self, start: int, end: int) -> Span:
        """Give the span of the buffer that the span of this reading came from."""
        ...


def _stretches(regex: Any, data: bytes) -> Iterator[Span]:
    """Give what `regex` matches with up to `_CONTEXT` bytes of the line before, none twice."""
    reached = 0
    for match in regex.finditer(data):
        start, end = match.span()
        low = max(reached, start - _CONTEXT)
        reached = end
        yield max(low, data.rfind(b"\n", low, start) + 1, data.rfind(b"\x00", low, start) + 1), end


class Folded:
    """The stretches of text that are not plain ASCII, through a character table.

    Places are worked out when asked for: most text has nothing to be placed.
    """

    def __init__(self, data: bytes, table: Mapping[int, str]) -> None:
        self._table = table
        self._runs: list[tuple[int, bytes]] = []
        self._folded: list[bytes] = []
        for start, end in _stretches(_DISGUISE, data):
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
            width = _size(character)
            here += _size(character.translate(self._table))
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

    @property
    def width(self) -> int:
        """How many bytes write one."""
        return len(self.marker) + 2 + len(self.tail)


def _escape(marker: bytes, tail: bytes = b"") -> Escape:
    written = "".join(f"\\x{byte:02x}" for byte in marker) + "[0-9A-Fa-f]{2}" + tail.decode()
    return Escape(marker, tail, compile_bytes(rf"{written}[^\s\"\x00]*"))


_ESCAPES: Final = (
    _escape(b"%"),
    _escape(b"\\x"),
    _escape(b"\\u00"),
    _escape(b"\\\\x"),
    _escape(b"\\\\u00"),
    _escape(b"%u00"),
    _escape(b"&#x", b";"),
)
_HEX_PAIRS: Final = {
    (high + low).encode(): bytes([int(high + low, 16)])
    for high in "0123456789abcdefABCDEF"
    for low in "0123456789abcdefABCDEF"
}


class Unescaped:
    """The stretches of text that have escapes of one kind in them, with the escapes undone."""

    def __init__(self, data: bytes, escape: Escape) -> None:
        self._width = escape.width
        self._pieces: list[bytes] = []
        self._starts: list[int] = []
        self._decoded: list[bool] = []
        for start, end in _stretches(escape.run, data):
            self._add_run(data[start:end], start, escape)
        self.data = b"".join(self._pieces)

    def _add_run(self, run: bytes, start: int, escape: Escape) -> None:
        first, *rest = run.split(escape.marker)
        self._add(first, start, decoded=False)
        start += len(first)
        for piece in rest:
            code = _HEX_PAIRS.get(piece[:2])
            if code is not None and piece.startswith(escape.tail, 2):
                self._add(code + piece[2 + len(escape.tail) :], start, decoded=True)
            else:
                self._add(escape.marker + piece, start, decoded=False)
            start += len(escape.marker) + len(piece)
        self._add(b"\n", start, decoded=False)

    def _add(self, piece: bytes, start: int, *, decoded: bool) -> None:
        self._pieces.append(piece)
        self._starts.append(start)
        self._decoded.append(decoded)

    @cached_property
    def _offsets(self) -> list[int]:
        return [0, *accumulate(map(len, self._pieces))]

    def origin(self, start: int, end: int) -> Span:
        return self._place(start)[0], self._place(max(start, end - 1))[1]

    def _place(self, offset: int) -> Span:
        index = min(bisect_right(self._offsets, offset), len(self._pieces)) - 1
        start, into = self._starts[index], offset - self._offsets[index]
        if not self._decoded[index]:
            return start + into, start + into + 1
        if not into:
            return start, start + self._width
        return start + self._width + into - 1, start + self._width + into


class Segment(NamedTuple):
    """A span that may be encoded, and its characters without what wraps them."""

    start: int
    end: int
    body: bytes


class Decoded:
    """What segments of a buffer decode to, one after the other."""

    def __init__(self, segments: Sequence[Segment], data: bytes, sizes: Sequence[int]) -> None:
        self._segments = segments
        self.data = data
        self._sizes = sizes

    @cached_property
    def _offsets(self) -> list[int]:
        return [0, *accumulate(size + len(_SEPARATOR) for size in self._sizes)]

    def origin(self, start: int, end: int) -> Span:
        first = self._segments[self._index(start)]
        last = self._segments[self._index(max(start, end - 1))]
        return first.start, last.end

    def _index(self, offset: int) -> int:
        return min(bisect_right(self._offsets, offset), len(self._segments)) - 1


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


def base64_views(segments: Sequence[Segment]) -> Iterator[View]:
    """Decode each segment from each of its first four characters.

    What stands before an encoded text and belongs to the same alphabet, a path or a
    name, would otherwise shift it out of step. Long segments are taken to begin where
    they begin.
    """
    for shift in range(4):
        if shift:
            segments = [segment for segment in segments if len(segment.body) <= _LONG]
        padded = [segment.body[shift:] + _PADDING[(len(segment.body) - shift) & 3] for segment in segments]
        joined = _SEPARATOR_BASE64.join(padded).translate(_STANDARD)
        yield Decoded(segments, binascii.a2b_base64(joined), [len(body) // 4 * 3 for body in padded])


def hex_views(segments: Sequence[Segment]) -> Iterator[View]:
    """Decode each segment from its first and from its second digit."""
    for shift in range(2):
        bodies = [segment.body[shift:] for segment in segments]
        decoded = [binascii.unhexlify(body[: len(body) & ~1]) for body in bodies]
        yield Decoded(segments, _SEPARATOR.join(decoded), [len(body) // 2 for body in bodies])


def base32_views(segments: Sequence[Segment]) -> Iterator[View]:
    """Decode each segment, in upper or lower case, padding or not."""
    decoded = [_base32(segment.body.upper()) for segment in segments]
    yield Decoded(segments, _SEPARATOR.join(decoded), [len(body) for body in decoded])


def _base32(body: bytes) -> bytes:
    # A power-of-two base is read by `int` in linear time, and far faster than base64.b32decode.
    size = len(body) * 5 // 8
    return (int(body.translate(_BASE32_DIGITS), 32) >> (len(body) * 5 - size * 8)).to_bytes(size, "big")


def _segments(regex: Any, data: bytes) -> list[Segment]:
    spans = [match.span() for match in regex.finditer(data)]
    return [Segment(start, end, data[start:end].rstrip(b"=")) for start, end in spans]


def _is_hex(segment: Segment) -> bool:
    """Tell a long run of hexadecimal digits, which as base64 would decode to no text."""
    return len(segment.body) >= _SHORTEST_HEX and not segment.body.translate(None, _HEX_DIGITS)


def _unwrapped(segments: Sequence[Segment], data: bytes) -> list[Segment]:
    """Give the segments that are the lines of one, put together."""
    groups: list[list[Segment]] = []
    last: Segment | None = None
    for before, segment in pairwise(segments):
        line = _next_line(data[before.end : segment.start], segment)
        if line is None:
            continue
        if last is before:
            groups[-1].append(line)
        else:
            groups.append([before, line])
        last = segment
    return [_one_segment(group, data) for group in groups]


def _next_line(gap: bytes, segment: Segment) -> Segment | None:
    """Give `segment` as the next line, if `gap` before it is the break of a line."""
    if len(gap) > _LONGEST_BREAK:
        return None
    if gap == b"\n" or _LINE_BREAK.fullmatch(gap):
        return segment
    if segment.body.startswith(b"n") and _WRITTEN_BREAK.fullmatch(gap):
        return segment._replace(body=segment.body[1:])
    return None


def _one_segment(lines: list[Segment], data: bytes) -> Segment:
    end = lines[-1].end
    rest = b""
    if (gap := _LINE_BREAK.match(data, end)) and (last := _LAST_LINE.match(data, gap.end())):
        end, rest = last.end(), last.group().rstrip(b"=")
    return Segment(lines[0].start, end, b"".join(line.body for line in lines) + rest)


def _hex_lines(data: bytes) -> list[Segment]:
    spans = [match.span() for match in _SPACED_HEX.finditer(data)]
    return [
        Segment(start, end, data[start:end].replace(b"0x", b"").translate(None, _NOT_HEX))
        for start, end in spans
    ]


def _folded_views(data: bytes) -> Iterator[View]:
    if not data.isascii():
        yield Folded(data, FOLD)
        if SMUGGLING in data:
            yield Folded(data, REVEAL)


def _unescaped_views(data: bytes, *, is_text: bool) -> Iterator[View]:
    for escape in _ESCAPES:
        if escape.marker in data:
            view = Unescaped(data, escape)
            yield view
            if is_text:
                yield from (Chained(folded, view) for folded in _folded_views(view.data))


def _decoded_views(data: bytes) -> Iterator[View]:
    if lines := _hex_lines(data):
        yield from hex_views(lines)
    segments = _segments(_BASE64, data)
    if not segments:
        return
    yield from base64_views([segment for segment in segments if not _is_hex(segment)])
    if wrapped := _unwrapped(segments, data):
        yield from base64_views(wrapped)
    # Every run of base32 or hexadecimal digits lies in a segment, and segments are few.
    bodies = [segment.body for segment in segments]
    words = Decoded(segments, _SEPARATOR.join(bodies), list(map(len, bodies)))
    if digits := _segments(_HEX, words.data):
        yield from (Chained(view, words) for view in hex_views(digits))
    if letters := _segments(_BASE32, words.data):
        yield from (Chained(view, words) for view in base32_views(letters))


def views_of(data: bytes, *, is_text: bool) -> Iterator[View]:
    """Give the other readings of `data`: of the text itself, and of what is encoded in it."""
    if is_text:
        yield from _folded_views(data)
    yield from _unescaped_views(data, is_text=is_text)
    for view in _decoded_views(data):
        yield view
        if _UTF16.search(view.data):
            yield Chained(Dropped(view.data), view)


class Layer:
    """All readings of the layer below, end to end, so that they are surveyed in one pass."""

    def __init__(self, below: Layer | None, views: Sequence[View]) -> None:
        self.below = below
        self._views = views
        self._offsets = [0, *accumulate(len(view.data) + 1 for view in views)]
        self.data = b"\n".join(view.data for view in views)

    def root_span(self, start: int, end: int) -> Span:
        """Give the span of the text at the bottom that a span of this layer came from."""
        index = min(bisect_right(self._offsets, start), len(self._views)) - 1
        base, size = self._offsets[index], len(self._views[index].data)
        span = self._views[index].origin(start - base, max(start - base + 1, min(end - base, size)))
        return span if self.below is None else self.below.root_span(*span)


class Root(Layer):
    """The text as it is."""

    def __init__(self, data: bytes) -> None:
        super().__init__(None, ())
        self.data = data

    def root_span(self, start: int, end: int) -> Span:
        return start, end


def next_layer(layer: Layer) -> Layer | None:
    """Give what `layer` reads as, one decoding further; None where there is nothing more."""
    views = [view for view in views_of(layer.data, is_text=layer.below is None) if view.data]
    return Layer(layer, views) if views else None
