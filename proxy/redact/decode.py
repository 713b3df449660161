"""Other readings of a text: folded, unescaped, and what encoded segments in it decode to.

Pure. Each reading knows which span of the text below it a span of its own came from, so a
finding three encodings deep still says what to mask. Work is bounded: `MAX_DEPTH` layers,
and together no more than `GROWTH` times the text plus `SLACK` bytes.
"""

from __future__ import annotations

import binascii
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final

from proxy.redact.detectors import compile_bytes
from proxy.redact.fold import FOLD, REVEAL, SMUGGLING
from proxy.redact.views import (
    ESCAPES,
    SEPARATOR,
    Chained,
    Decoded,
    Dropped,
    Folded,
    Segment,
    Span,
    Unescaped,
    View,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_DEPTH: Final = 3
GROWTH: Final = 24
SLACK: Final = 1 << 20

_BASE64: Final = compile_bytes(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_HEX: Final = compile_bytes("[0-9A-Fa-f]{26,}")
_SPACED_HEX: Final = compile_bytes(r"(?:[0-9A-Fa-f]{2}[\s:,;-]{1,2}(?:0x)?){12}(?:[0-9A-Fa-f]{2}[\s:,;-]{0,2}(?:0x)?)*")
_BASE32: Final = compile_bytes("[A-Z2-7]{22,}={0,6}|[a-z2-7]{22,}={0,6}")
_LINE_BREAK: Final = compile_bytes(r"[ \t]{0,4}(?:\r?\n|(?:\\{1,8}r)?\\{1,8}n)[ \t]{0,16}")
# Of a written-out `\\n` the letter belongs to the alphabet, and so to the segment after it.
_WRITTEN_BREAK: Final = compile_bytes(r"(?:\\{1,8}r)?\\{1,8}")
_LAST_LINE: Final = compile_bytes(r"[A-Za-z0-9+/_-]{1,19}={0,2}")
_UTF16: Final = compile_bytes(r"(?:[\x20-\x7e]\x00){8}|(?:\x00[\x20-\x7e]){8}")

_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_SPACED: Final = bytes(byte if byte in _ALPHABET else ord(" ") for byte in range(256))
_SHORTEST_BASE64: Final = 20
_DENSE: Final = 16
_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
_NOT_HEX: Final = bytes(set(range(256)) - set(_HEX_DIGITS))
_SHORTEST_HEX: Final = 26
_LONGEST_BREAK: Final = 24
_LONG: Final = 1 << 14
_PADDING: Final = (b"", b"AAA", b"AA", b"A")
_SEPARATOR_BASE64: Final = binascii.b2a_base64(SEPARATOR, newline=False)
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_BASE32_DIGITS: Final = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789abcdefghijklmnopqrstuv")


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
        decoded = binascii.a2b_base64(joined)
        yield Decoded(segments, decoded, [len(body) // 4 * 3 for body in padded])
        if not shift and decoded.isascii():
            return  # nothing was out of step


def hex_views(segments: Sequence[Segment]) -> Iterator[View]:
    """Decode each segment from its first and from its second digit."""
    for shift in range(2):
        bodies = [segment.body[shift:] for segment in segments]
        decoded = [binascii.unhexlify(body[: len(body) & ~1]) for body in bodies]
        yield Decoded(segments, SEPARATOR.join(decoded), [len(body) // 2 for body in bodies])


def base32_views(segments: Sequence[Segment]) -> Iterator[View]:
    """Decode each segment, in upper or lower case, padding or not."""
    decoded = [_base32(segment.body.upper()) for segment in segments]
    yield Decoded(segments, SEPARATOR.join(decoded), [len(body) for body in decoded])


def _base32(body: bytes) -> bytes:
    # A power-of-two base is read by `int` in linear time, and far faster than base64.b32decode.
    size = len(body) * 5 // 8
    return (int(body.translate(_BASE32_DIGITS), 32) >> (len(body) * 5 - size * 8)).to_bytes(size, "big")


def _segments(regex: Any, data: bytes) -> list[Segment]:
    spans = [match.span() for match in regex.finditer(data)]
    return [Segment(start, end, data[start:end].rstrip(b"=")) for start, end in spans]


def _base64_segments(data: bytes) -> list[Segment]:
    """Give the runs of the base64 alphabet; where most of the text is such runs, by splitting it."""
    others = len(data.translate(None, _ALPHABET))
    if len(data) < _DENSE * (others + 1):
        return _segments(_BASE64, data)
    segments = []
    end = 0
    for word in data.translate(_SPACED).split():
        if len(word) >= _SHORTEST_BASE64:
            start = data.find(word, end)
            end = start + len(word)
            padding = data[end : end + 2]
            end += len(padding) - len(padding.lstrip(b"="))
            segments.append(Segment(start, end, word))
    return segments


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
    if len(gap) > _LONGEST_BREAK or not (b"\n" in gap or b"\\" in gap):
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
    return [Segment(start, end, data[start:end].replace(b"0x", b"").translate(None, _NOT_HEX)) for start, end in spans]


def _folded_views(data: bytes) -> Iterator[View]:
    if not data.isascii():
        yield Folded(data, FOLD)
        if SMUGGLING in data:
            yield Folded(data, REVEAL)


def _unescaped_views(data: bytes, *, is_text: bool) -> Iterator[View]:
    for escape in ESCAPES:
        if escape.marker in data:
            view = Unescaped(data, escape)
            yield view
            if is_text:
                yield from (Chained(folded, view) for folded in _folded_views(view.data))


def _decoded_views(data: bytes) -> Iterator[View]:
    if lines := _hex_lines(data):
        yield from hex_views(lines)
    segments = _base64_segments(data)
    if not segments:
        return
    if wrapped := _unwrapped(segments, data):
        yield from base64_views(wrapped)
    if digits := [segment for segment in segments if _is_hex(segment)]:
        yield from hex_views(digits)
        segments = [segment for segment in segments if not _is_hex(segment)]
    if segments:
        yield from base64_views(segments)
        yield from _inner_views(segments)


def _inner_views(segments: Sequence[Segment]) -> Iterator[View]:
    """Give what runs of hexadecimal or base32 digits within segments decode to."""
    bodies = [segment.body for segment in segments]
    words = Decoded(segments, SEPARATOR.join(bodies), list(map(len, bodies)))
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
