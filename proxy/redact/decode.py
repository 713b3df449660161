"""Other readings of a text: folded, unescaped, and what encoded segments in it decode to.

Pure. Each reading knows which span of the text below it a span of its own came from, so a
finding three encodings deep still says what to mask. Work is bounded: `MAX_DEPTH` layers,
and together no more than `GROWTH` times the text plus `SLACK` bytes.
"""

from __future__ import annotations

import binascii
import re
from bisect import bisect_right
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, compress, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.redact.detectors import compile_bytes
from proxy.redact.encoded_spans import BASE32, HEX, base64_runs, has_long_digits, hex_lines
from proxy.redact.unicode_fold import FOLD, REVEAL, SMUGGLING
from proxy.redact.views import (
    SEPARATOR,
    Chained,
    Decoded,
    Dropped,
    Folded,
    Segments,
    Span,
    Unescaped,
    View,
    escapes_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_DEPTH: Final = 3
GROWTH: Final = 24
SLACK: Final = 1 << 20

_HEX: Final = compile_bytes(HEX)
_BASE32: Final = compile_bytes(BASE32)
# The same for small texts, where Python's own engine is quicker to start; nothing in them makes it go back far.
_SMALL_HEX: Final = re.compile(HEX.encode())
_SMALL_BASE32: Final = re.compile(BASE32.encode())
_SMALL_UTF16: Final = re.compile(rb"(?:[\x20-\x7e]\x00){8}|(?:\x00[\x20-\x7e]){8}")
_LINE_BREAK: Final = compile_bytes(r"[ \t]{0,4}(?:\r?\n|(?:\\{1,8}r)?\\{1,8}n)[ \t]{0,16}")
# Of a written-out `\\n` the letter belongs to the alphabet, and so to the segment after it.
_WRITTEN_BREAK: Final = compile_bytes(r"(?:\\{1,8}r)?\\{1,8}")
# Found wherever one line of a segment ends and the next begins.
_ANY_BREAK: Final = compile_bytes(
    r"[A-Za-z0-9+/_=-][ \t]{0,4}(?:\r?\n|(?:\\{1,8}r)?\\{1,8}n)[ \t]{0,16}[A-Za-z0-9+/_-]"
)
_LAST_LINE: Final = compile_bytes(r"[A-Za-z0-9+/_-]{1,19}={0,2}")
# Part of either, and sought fast for the byte that it begins with.
_MANY_NULS: Final = re.compile(rb"\x00[\x20-\x7e]\x00[\x20-\x7e]\x00[\x20-\x7e]\x00")
_UTF16: Final = compile_bytes(r"(?:[\x20-\x7e]\x00){8}|(?:\x00[\x20-\x7e]){8}")

_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
_NOT_HEX: Final = bytes(set(range(256)) - set(_HEX_DIGITS))
_SHORTEST_HEX: Final = 26
_LONGEST_BREAK: Final = 24
_BREAKING: Final = b" \t\r\n\\rn"
"""What the break of a line, written out or not, is made of."""
_LONG: Final = 1 << 14
_SMALL: Final = 1 << 12
_FEW: Final = 1 << 7
"""Where there is a segment for so many bytes or more, a question to each is cheaper than a search of the text."""
_PADDING: Final = (b"", b"AAA", b"AA", b"A")
_BASE64_RATIO: Final = Fraction(3, 4)
_HEX_RATIO: Final = Fraction(1, 2)
_SAME_SIZE: Final = Fraction(1)
_SEPARATOR_BASE64: Final = binascii.b2a_base64(SEPARATOR, newline=False)
_SHIFTS: Final = [(shift, b"A" * shift + _SEPARATOR_BASE64, b"A" * shift) for shift in (1, 2, 3)]
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_BASE32_DIGITS: Final = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789abcdefghijklmnopqrstuv")


def base64_views(segments: Segments) -> list[View]:
    """Decode each segment from each of its first four characters.

    What stands before an encoded text and belongs to the same alphabet, a path or a
    name, would otherwise shift it out of step. Long segments are taken to begin where
    they begin.
    """
    if not segments.bodies:
        return []
    padded = [body + _PADDING[len(body) & 3] for body in segments.bodies]
    decoded = binascii.a2b_base64(_SEPARATOR_BASE64.join(padded).translate(_STANDARD))
    views: list[View] = [Decoded(segments, decoded, padded, _BASE64_RATIO)]
    if decoded.isascii():
        return views  # nothing was out of step
    if len(max(padded, key=len)) > _LONG:
        short = [len(body) <= _LONG for body in padded]
        segments, padded = segments.chosen(short), list(compress(padded, short))
    for shift, separator, filler in _SHIFTS if padded else ():
        # What the shift drops before the first group, it adds as padding after the last.
        joined = separator.join([body[shift:] for body in padded]) + filler
        decoded = binascii.a2b_base64(joined.translate(_STANDARD))
        views.append(Decoded(segments, decoded, padded, _BASE64_RATIO))
    return views


def hex_views(segments: Segments) -> list[View]:
    """Decode each segment from its first and from its second digit."""
    views: list[View] = []
    for shift in range(2):
        bodies = [body[shift : len(body) - (len(body) - shift & 1)] for body in segments.bodies]
        decoded = SEPARATOR.join(map(binascii.unhexlify, bodies))
        views.append(Decoded(segments, decoded, bodies, _HEX_RATIO))
    return views


def base32_views(segments: Segments) -> list[View]:
    """Decode each segment, in upper or lower case, padding or not."""
    decoded = [_base32(body.upper()) for body in segments.bodies]
    return [Decoded(segments, SEPARATOR.join(decoded), decoded, _SAME_SIZE)]


def _base32(body: bytes) -> bytes:
    # A power-of-two base is read by `int` in linear time, and far faster than base64.b32decode.
    size = len(body) * 5 // 8
    return (int(body.translate(_BASE32_DIGITS), 32) >> (len(body) * 5 - size * 8)).to_bytes(size, "big")


def _segments(spans: Sequence[Span], data: bytes) -> Segments:
    bodies = [data[start:end] for start, end in spans]
    if b"=" in data:
        bodies = [body.rstrip(b"=") for body in bodies]
    return Segments([start for start, _ in spans], [end for _, end in spans], bodies)


def _is_hex(body: bytes) -> bool:
    """Tell a long run of hexadecimal digits, which as base64 would decode to no text."""
    return len(body) >= _SHORTEST_HEX and not body.translate(None, _HEX_DIGITS)


def _unwrapped(segments: Segments, data: bytes) -> Segments:
    """Return the segments that are the lines of one, put together."""
    found = Segments([], [], [])
    neighbours = enumerate(zip(segments.ends, islice(segments.starts, 1, None), strict=False))
    near = [(index, data[end:start]) for index, (end, start) in neighbours if start - end <= _LONGEST_BREAK]
    breaks = {gap for gap in {gap for _, gap in near} if _is_break(gap)}
    lines: list[bytes] = []
    first = last = -1
    for index, gap in [(index, gap) for index, gap in near if gap in breaks]:
        line = _next_line(gap, segments.bodies[index + 1])
        if line is None:
            continue
        if last != index:
            _add_lines(found, segments, (first, last), lines, data)
            first, lines = index, [segments.bodies[index]]
        lines.append(line)
        last = index + 1
    _add_lines(found, segments, (first, last), lines, data)
    return found


def _next_line(gap: bytes, body: bytes) -> bytes | None:
    """Return `body` as the next line, if `gap`, the break before it, is not the word `n` after a backslash."""
    if _breaks_line(gap):
        return body
    return body[1:] if body.startswith(b"n") else None


def _is_break(gap: bytes) -> bool:
    return not gap.strip(_BREAKING) and (_breaks_line(gap) or _WRITTEN_BREAK.fullmatch(gap) is not None)


@lru_cache(maxsize=256)
def _breaks_line(gap: bytes) -> bool:
    return _LINE_BREAK.fullmatch(gap) is not None


def _add_lines(found: Segments, segments: Segments, span: Span, lines: list[bytes], data: bytes) -> None:
    """Add the segment made of `lines`, those from the first to the last index of `span`, and of a short last one."""
    if not lines:
        return
    end, rest = segments.ends[span[1]], b""
    if (gap := _LINE_BREAK.match(data, end)) and (last := _LAST_LINE.match(data, gap.end())):
        end, rest = last.end(), last.group().rstrip(b"=")
    found.starts.append(segments.starts[span[0]])
    found.ends.append(end)
    found.bodies.append(b"".join(lines) + rest)


def _hex_segments(spans: Sequence[Span], data: bytes) -> Segments:
    lines = _segments(spans, data)
    bodies = [body.replace(b"0x", b"").translate(None, _NOT_HEX) for body in lines.bodies]
    return Segments(lines.starts, lines.ends, bodies)


def _folded_views(data: bytes) -> Iterator[View]:
    if not data.isascii():
        yield Folded(data, FOLD)
        if SMUGGLING[:1] in data and SMUGGLING in data:
            yield Folded(data, REVEAL)


def _unescaped_views(data: bytes, *, is_text: bool) -> Iterator[View]:
    for escape in escapes_in(data):
        view = Unescaped(data, escape)
        yield view
        if is_text:
            yield from (Chained(folded, view) for folded in _folded_views(view.data))


class Signs(NamedTuple):
    """What a survey of a text has shown of encodings in it: whether there can be any of a kind."""

    hex_lines: bool
    base64_runs: bool
    masks: bool
    """Whether part of the text can be a mask."""


ANY_SIGN: Final = Signs(hex_lines=True, base64_runs=True, masks=True)
NO_SIGN: Final = Signs(hex_lines=False, base64_runs=False, masks=False)


def _run_views(data: bytes) -> list[View]:
    """Return what runs of base64 characters decode to, and what is in them of other digits."""
    runs = base64_runs(data)
    if not runs:
        return []
    segments = _segments(runs, data)
    views: list[View] = []
    if len(runs) > 1 and (b"\n" in data or b"\\" in data) and (len(data) > _FEW * len(runs) or _ANY_BREAK.search(data)):
        views += base64_views(_unwrapped(segments, data))
    if not has_long_digits(SEPARATOR.join(segments.bodies)):
        return views + base64_views(segments)
    is_hex = [_is_hex(body) for body in segments.bodies]
    if any(is_hex):
        views += hex_views(segments.chosen(is_hex))
        segments = segments.chosen([not flag for flag in is_hex])
    return [*views, *base64_views(segments), *_inner_views(segments)]


def _inner_views(segments: Segments) -> Iterator[View]:
    """Return what runs of hexadecimal or base32 digits within segments decode to."""
    joined = SEPARATOR.join(segments.bodies)
    small = len(joined) <= _SMALL
    hexes, base32 = (_SMALL_HEX, _SMALL_BASE32) if small else (_HEX, _BASE32)
    for regex, decode in ((hexes, hex_views), (base32, base32_views)):
        spans = [match.span() for match in regex.finditer(joined)]
        if spans:
            words = Decoded(segments, joined, segments.bodies, _SAME_SIZE)
            yield from (Chained(view, words) for view in decode(_segments(spans, joined)))


def _decoded_views(data: bytes, signs: Signs) -> list[View]:
    views: list[View] = []
    if signs.hex_lines and (lines := hex_lines(data)):
        views += hex_views(_hex_segments(lines, data))
    if signs.base64_runs:
        views += _run_views(data)
    if not any(b"\x00" in view.data for view in views):
        return views
    # Right after its own reading: what stands beside a text decides how far matches go that touch its ends.
    plain = [(view, Chained(Dropped(view.data), view) if _is_utf16(view.data) else None) for view in views]
    return [view for pair in plain for view in pair if view is not None]


def _is_utf16(data: bytes) -> bool:
    """Return whether there is plain text in UTF-16 somewhere in `data`."""
    if _MANY_NULS.search(data) is None:
        return False
    return (_SMALL_UTF16 if len(data) <= _SMALL else _UTF16).search(data) is not None


def views_of(data: bytes, *, is_text: bool, signs: Signs) -> list[View]:
    """Return the other readings of `data`: of the text itself, and of what is encoded in it."""
    views: list[View] = []
    if is_text and not data.isascii():
        views += _folded_views(data)
    views += _unescaped_views(data, is_text=is_text)
    if signs.hex_lines or signs.base64_runs:
        views += _decoded_views(data, signs)
    return [view for view in views if view.data]


class Layer:
    """All readings of the layer below, end to end, so that they are surveyed in one pass."""

    def __init__(self, below: Layer | None, views: Sequence[View]) -> None:
        self.below = below
        self._views = views
        self.data = b"\n".join([view.data for view in views])

    @cached_property
    def _offsets(self) -> list[int]:
        return [0, *accumulate(len(view.data) + 1 for view in self._views)]

    def root_span(self, start: int, end: int) -> Span:
        """Return the span of the text at the bottom that a span of this layer came from."""
        index = min(bisect_right(self._offsets, start), len(self._views)) - 1
        base, size = self._offsets[index], len(self._views[index].data)
        span = self._views[index].origin(start - base, max(start - base + 1, min(end - base, size)))
        return span if self.below is None else self.below.root_span(*span)


class Root(Layer):
    """The text as it is."""

    def __init__(self, data: bytes) -> None:
        self.below = None
        self.data = data

    def root_span(self, start: int, end: int) -> Span:
        return start, end


def next_layer(layer: Layer, data: bytes, signs: Signs = ANY_SIGN) -> Layer | None:
    """Get what `data`, all or the beginning of `layer`, reads as one decoding further; None where that is nothing."""
    views = views_of(data, is_text=layer.below is None, signs=signs)
    return Layer(layer, views) if views else None
