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
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxy.redact.detectors import compile_bytes
from proxy.redact.fold import FOLD, REVEAL, has_smuggled
from proxy.redact.scan import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_DEPTH: Final = 3
GROWTH: Final = 24
SLACK: Final = 1 << 20

type Span = tuple[int, int]

_BASE64: Final = compile_bytes(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_HEX: Final = compile_bytes("[0-9A-Fa-f]{26,}")
_SPACED_HEX: Final = compile_bytes(SIGNALS["spaced-hex"] + r"(?:[0-9A-Fa-f]{2}[\s:,;-]{0,2}(?:0x)?)*")
_BASE32: Final = compile_bytes("[A-Z2-7]{22,}={0,6}|[a-z2-7]{22,}={0,6}")
_WRAPPED: Final = compile_bytes(
    r"[A-Za-z0-9+/_-]{16,}(?:(?:\s{0,4}[\r\n]\s{0,8}|(?:\\r)?\\n)[A-Za-z0-9+/_-]{4,})+={0,2}"
)
_UTF16: Final = compile_bytes(r"(?:[\x20-\x7e]\x00){8}|(?:\x00[\x20-\x7e]){8}")
_BREAKS: Final = compile_bytes(r"\s+|\\[rn]|=+")

_SEPARATOR: Final = b"\n\n\n"
_SEPARATOR_BASE64: Final = binascii.b2a_base64(_SEPARATOR, newline=False)
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_BASE32_DIGITS: Final = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789abcdefghijklmnopqrstuv")


class View(Protocol):
    """One other reading of a buffer."""

    @property
    def data(self) -> bytes:
        """The reading."""
        ...

    def origin(self, start: int, end: int) -> Span:
        """Give the span of the buffer that the span of this reading came from."""
        ...


class Folded:
    """Text through a character table. Places are worked out block by block, when asked for."""

    _BLOCK = 4096

    def __init__(self, data: bytes, table: Mapping[int, str]) -> None:
        # Bytes that are no UTF-8 travel as surrogates, so that sizes stay exact.
        self._text = data.decode("utf-8", "surrogateescape")
        self._table = table
        self.data = self._text.translate(table).encode("utf-8", "surrogateescape")

    @cached_property
    def _blocks(self) -> tuple[list[int], list[int]]:
        folded, plain = [0], [0]
        for position in range(0, len(self._text), self._BLOCK):
            block = self._text[position : position + self._BLOCK]
            folded.append(folded[-1] + _size(block.translate(self._table)))
            plain.append(plain[-1] + _size(block))
        return folded, plain

    def origin(self, start: int, end: int) -> Span:
        return self._place(start)[0], self._place(max(start, end - 1))[1]

    def _place(self, offset: int) -> Span:
        folded, plain = self._blocks
        index = min(bisect_right(folded, offset), len(folded) - 1) - 1
        here, there = folded[index], plain[index]
        for character in self._text[index * self._BLOCK : (index + 1) * self._BLOCK]:
            width = _size(character)
            here += _size(character.translate(self._table))
            if here > offset:
                return there, there + width
            there += width
        return there, there


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


class Unescaped:
    """Text with one kind of escape undone: `%41`, `\\x41`, `\\u0041`, `&#x41;`."""

    def __init__(self, data: bytes, marker: bytes, tail: bytes = b"") -> None:
        self._width = len(marker) + 2 + len(tail)
        first, *rest = data.split(marker)
        pieces = [first]
        for piece in rest:
            code = _HEX_PAIRS.get(piece[:2])
            if code is None or (tail and not piece.startswith(tail, 2)):
                pieces[-1] += marker + piece
            else:
                pieces.append(code + piece[2 + len(tail) :])
        self._pieces = pieces
        self.data = b"".join(pieces)

    @cached_property
    def _offsets(self) -> list[int]:
        return [0, *accumulate(map(len, self._pieces))]

    def origin(self, start: int, end: int) -> Span:
        return self._place(start)[0], self._place(max(start, end - 1))[1]

    def _place(self, offset: int) -> Span:
        index = min(bisect_right(self._offsets, offset), len(self._pieces)) - 1
        shrunk = self._width - 1
        into = offset - self._offsets[index]
        if index and not into:
            start = offset + (index - 1) * shrunk
            return start, start + self._width
        return offset + index * shrunk, offset + index * shrunk + 1


_HEX_PAIRS: Final = {
    (high + low).encode(): bytes([int(high + low, 16)])
    for high in "0123456789abcdefABCDEF"
    for low in "0123456789abcdefABCDEF"
}

_ESCAPES: Final = ((b"%", b""), (b"\\x", b""), (b"\\u00", b""), (b"%u00", b""), (b"&#x", b";"))


@dataclass(frozen=True)
class Segment:
    """A span that may be encoded, and its characters without what wraps them."""

    start: int
    end: int
    body: bytes


class Decoded:
    """What segments of a buffer decode to, one after the other."""

    def __init__(self, segments: Sequence[Segment], data: bytes, sizes: Iterator[int]) -> None:
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
    name, would otherwise shift it out of step.
    """
    for shift in range(4):
        bodies = [segment.body[shift:] for segment in segments]
        padded = [body + b"A" * (-len(body) % 4) for body in bodies]
        joined = _SEPARATOR_BASE64.join(padded).translate(_STANDARD)
        yield Decoded(segments, binascii.a2b_base64(joined), (len(body) // 4 * 3 for body in padded))


def hex_views(segments: Sequence[Segment]) -> Iterator[View]:
    """Decode each segment from its first and from its second digit."""
    for shift in range(2):
        bodies = [segment.body[shift:] for segment in segments]
        decoded = [binascii.unhexlify(body[: len(body) & ~1]) for body in bodies]
        yield Decoded(segments, _SEPARATOR.join(decoded), (len(body) // 2 for body in bodies))


def base32_views(segments: Sequence[Segment]) -> Iterator[View]:
    """Decode each segment, in upper or lower case, padding or not."""
    decoded = [_base32(segment.body.upper()) for segment in segments]
    yield Decoded(segments, _SEPARATOR.join(decoded), iter([len(body) for body in decoded]))


def _base32(body: bytes) -> bytes:
    # A power-of-two base is read by `int` in linear time, and far faster than base64.b32decode.
    size = len(body) * 5 // 8
    return (int(body.translate(_BASE32_DIGITS), 32) >> (len(body) * 5 - size * 8)).to_bytes(size, "big")


def _segments(regex: Any, data: bytes) -> list[Segment]:
    return [Segment(match.start(), match.end(), match.group().rstrip(b"=")) for match in regex.finditer(data)]


def _cleaned(regex: Any, data: bytes, drop: Any) -> list[Segment]:
    return [Segment(match.start(), match.end(), drop.sub(b"", match.group())) for match in regex.finditer(data)]


_HEX_NOISE: Final = compile_bytes(r"0x|[^0-9A-Fa-f]")


def _text_views(data: bytes) -> Iterator[View]:
    if not data.isascii():
        yield Folded(data, FOLD)
        if has_smuggled(data.decode("utf-8", "replace")):
            yield Folded(data, REVEAL)


def _unescaped_views(data: bytes) -> Iterator[View]:
    for marker, tail in _ESCAPES:
        if marker in data:
            view = Unescaped(data, marker, tail)
            if len(view.data) != len(data):
                yield view
                yield from (Chained(folded, view) for folded in _text_views(view.data))


def _decoded_views(data: bytes, signals: frozenset[str]) -> Iterator[View]:
    if segments := _segments(_BASE64, data):
        yield from base64_views(segments)
    if "wrapped" in signals and (segments := _cleaned(_WRAPPED, data, _BREAKS)):
        yield from base64_views(segments)
    if "hex" in signals and (segments := _segments(_HEX, data)):
        yield from hex_views(segments)
    if "spaced-hex" in signals and (segments := _cleaned(_SPACED_HEX, data, _HEX_NOISE)):
        yield from hex_views(segments)
    if "base32" in signals and (segments := _segments(_BASE32, data)):
        yield from base32_views(segments)


def views_of(data: bytes, signals: frozenset[str], *, is_text: bool) -> Iterator[View]:
    """Give the other readings of `data`: of the text itself, and of what is encoded in it."""
    if is_text:
        yield from _text_views(data)
    yield from _unescaped_views(data)
    for view in _decoded_views(data, signals):
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


def next_layer(layer: Layer, signals: frozenset[str]) -> Layer | None:
    """Give what `layer` reads as, one decoding further; None where there is nothing more."""
    views = list(views_of(layer.data, signals, is_text=layer.below is None))
    return Layer(layer, views) if views else None
