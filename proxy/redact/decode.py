"""Layers of decoding: a text folded, unescaped, and with what encoded segments in it decode to.

Pure. Each view knows which span of the layer below a span of its own came from, so a match three encodings deep still
says what to mask. Work is bounded: `MAX_DEPTH` layers, and all together no more than `GROWTH` times the text plus
`SLACK` bytes.
"""

from __future__ import annotations

import binascii
import re
from bisect import bisect_right
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import compress, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.redact.detectors import compile_bytes
from proxy.redact.encoded_spans import BASE32, HEX, base64_runs, has_long_digits, hex_lines
from proxy.redact.unicode_fold import FOLD, REVEAL, SMUGGLING
from proxy.redact.views import (
    SEPARATOR,
    ChainedView,
    DecodedView,
    FoldedView,
    Segments,
    Span,
    UnescapedView,
    View,
    WithoutNuls,
    escapes_in,
    part_starts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_DEPTH: Final = 4
GROWTH: Final = 24
SLACK: Final = 1 << 20

_HEX: Final = compile_bytes(HEX)
_BASE32: Final = compile_bytes(BASE32)
# The same for small texts, where Python's own engine is quicker to start; none of them can backtrack far.
_SMALL_HEX: Final = re.compile(HEX.encode())
_SMALL_BASE32: Final = re.compile(BASE32.encode())
_SMALL_UTF16: Final = re.compile(rb"(?:[\x20-\x7e]\x00){8}|(?:\x00[\x20-\x7e]){8}")
_LINE_BREAK: Final = compile_bytes(r"[ \t]{0,4}(?:\r?\n|(?:\\{1,8}r)?\\{1,8}n)[ \t]{0,16}")
# The letter of a written-out `\\n` belongs to the base64 alphabet, and so to the segment after it.
_WRITTEN_BREAK: Final = compile_bytes(r"(?:\\{1,8}r)?\\{1,8}")
# Found wherever one line of a segment ends and the next begins.
_ANY_BREAK: Final = compile_bytes(
    r"[A-Za-z0-9+/_=-][ \t]{0,4}(?:\r?\n|(?:\\{1,8}r)?\\{1,8}n)[ \t]{0,16}[A-Za-z0-9+/_-]"
)
_LAST_LINE: Final = compile_bytes(r"[A-Za-z0-9+/_-]{1,19}={0,2}")
# Found in all text that `_UTF16` matches, and searched fast for the byte that it begins with.
_MANY_NULS: Final = re.compile(rb"\x00[\x20-\x7e]\x00[\x20-\x7e]\x00[\x20-\x7e]\x00")
_UTF16: Final = compile_bytes(r"(?:[\x20-\x7e]\x00){8}|(?:\x00[\x20-\x7e]){8}")

_HEX_DIGITS: Final = b"0123456789abcdefABCDEF"
_NOT_HEX: Final = bytes(set(range(256)) - set(_HEX_DIGITS))
_SHORTEST_HEX: Final = 26
_LONGEST_BREAK: Final = 24
_BREAK_BYTES: Final = b" \t\r\n\\rn"
_LONG: Final = 1 << 14
_SMALL: Final = 1 << 12
# With a segment for so many bytes or more, a test of each gap is cheaper than a search of the text.
_FEW: Final = 1 << 7
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

    What stands before an encoded text and belongs to the same alphabet, a path or a name, would otherwise shift it
    out of step. Segments longer than `_LONG` are decoded from their first character alone.
    """
    if not segments.bodies:
        return []
    padded = [body + _PADDING[len(body) & 3] for body in segments.bodies]
    decoded = binascii.a2b_base64(_SEPARATOR_BASE64.join(padded).translate(_STANDARD))
    views: list[View] = [DecodedView(segments, decoded, padded, _BASE64_RATIO)]
    if decoded.isascii():
        return views  # nothing was out of step
    if len(max(padded, key=len)) > _LONG:
        short = [len(body) <= _LONG for body in padded]
        segments, padded = segments.chosen(short), list(compress(padded, short))
    for shift, separator, filler in _SHIFTS if padded else ():
        # What the shift drops before the first group, it adds as padding after the last.
        joined = separator.join([body[shift:] for body in padded]) + filler
        decoded = binascii.a2b_base64(joined.translate(_STANDARD))
        views.append(DecodedView(segments, decoded, padded, _BASE64_RATIO))
    return views


def hex_views(segments: Segments) -> list[View]:
    """Decode each segment from its first and from its second digit."""
    views: list[View] = []
    for shift in range(2):
        bodies = [body[shift : len(body) - (len(body) - shift & 1)] for body in segments.bodies]
        decoded = SEPARATOR.join(map(binascii.unhexlify, bodies))
        views.append(DecodedView(segments, decoded, bodies, _HEX_RATIO))
    return views


def base32_views(segments: Segments) -> list[View]:
    """Decode each segment, in upper or lower case, padded or not."""
    # A power-of-two base is read by `int` in linear time, and far faster than base64.b32decode.
    numbers = [(int(body.upper().translate(_BASE32_DIGITS), 32), len(body) * 5) for body in segments.bodies]
    decoded = [(number >> bits % 8).to_bytes(bits // 8, "big") for number, bits in numbers]
    return [DecodedView(segments, SEPARATOR.join(decoded), decoded, _SAME_SIZE)]


def _segments(spans: Sequence[Span], data: bytes) -> Segments:
    bodies = [data[start:end] for start, end in spans]
    if b"=" in data:
        bodies = [body.rstrip(b"=") for body in bodies]
    return Segments([start for start, _ in spans], [end for _, end in spans], bodies)


def _unwrapped(segments: Segments, data: bytes) -> Segments:
    """Return, put together, the segments that are the lines of one, as MIME and PEM wrap base64."""
    found = Segments([], [], [])
    neighbours = enumerate(zip(segments.ends, islice(segments.starts, 1, None), strict=False))
    near = [(index, data[end:start]) for index, (end, start) in neighbours if start - end <= _LONGEST_BREAK]
    gaps = {gap for _, gap in near if not gap.strip(_BREAK_BYTES)}
    breaks = {gap for gap in gaps if _breaks_line(gap) or _WRITTEN_BREAK.fullmatch(gap)}
    lines: list[bytes] = []
    first = last = -1
    for index, gap in [(index, gap) for index, gap in near if gap in breaks]:
        line = segments.bodies[index + 1]
        if not _breaks_line(gap):
            if not line.startswith(b"n"):
                continue  # a backslash before another letter
            line = line[1:]
        if last != index:
            _add_lines(found, segments, (first, last), lines, data)
            first, lines = index, [segments.bodies[index]]
        lines.append(line)
        last = index + 1
    _add_lines(found, segments, (first, last), lines, data)
    return found


@lru_cache(maxsize=256)
def _breaks_line(gap: bytes) -> bool:
    return _LINE_BREAK.fullmatch(gap) is not None


def _add_lines(found: Segments, segments: Segments, span: Span, lines: list[bytes], data: bytes) -> None:
    """Add the segment made of `lines`, those from the first to the last index of `span`, and of a short last one."""
    if not lines:
        return
    end, rest = segments.ends[span[1]], b""
    # The last line may be shorter than any run that is searched for, and still end a secret.
    if (gap := _LINE_BREAK.match(data, end)) and (last := _LAST_LINE.match(data, gap.end())):
        end, rest = last.end(), last.group().rstrip(b"=")
    found.starts.append(segments.starts[span[0]])
    found.ends.append(end)
    found.bodies.append(b"".join(lines) + rest)


def _folded_views(data: bytes) -> Iterator[View]:
    if not data.isascii():
        yield FoldedView(data, FOLD)
        # A second table, because the same characters either hide between letters or are the letters themselves.
        if SMUGGLING[:1] in data and SMUGGLING in data:
            yield FoldedView(data, REVEAL)


def _unescaped_views(data: bytes, *, is_text: bool) -> Iterator[View]:
    for escape in escapes_in(data):
        view = UnescapedView(data, escape)
        yield view
        if is_text:  # percent-encoded UTF-8 is folded in the same layer as UTF-8 itself
            yield from (ChainedView(folded, view) for folded in _folded_views(view.data))


class EncodingSigns(NamedTuple):
    """Which kinds of encoding, and of masks, a prescan has shown that a text may hold."""

    hex_lines: bool
    base64_runs: bool
    masks: bool


ANY_SIGN: Final = EncodingSigns(hex_lines=True, base64_runs=True, masks=True)
NO_SIGN: Final = EncodingSigns(hex_lines=False, base64_runs=False, masks=False)


def _run_views(data: bytes) -> list[View]:
    """Return what runs of base64 characters decode to, and what runs of other digits in them do."""
    if not (runs := base64_runs(data)):
        return []
    segments = _segments(runs, data)
    views: list[View] = []
    if len(runs) > 1 and (b"\n" in data or b"\\" in data) and (len(data) > _FEW * len(runs) or _ANY_BREAK.search(data)):
        views += base64_views(_unwrapped(segments, data))
    if not has_long_digits(SEPARATOR.join(segments.bodies)):
        return views + base64_views(segments)
    # So many hexadecimal digits in a row are no base64 of any text.
    is_hex = [len(body) >= _SHORTEST_HEX and not body.translate(None, _HEX_DIGITS) for body in segments.bodies]
    if any(is_hex):
        views += hex_views(segments.chosen(is_hex))
        segments = segments.chosen([not flag for flag in is_hex])
    return [*views, *base64_views(segments), *_inner_views(segments)]


def _inner_views(segments: Segments) -> Iterator[View]:
    """Return what runs of hexadecimal or base32 digits within segments decode to."""
    joined = SEPARATOR.join(segments.bodies)
    hexes, base32 = (_SMALL_HEX, _SMALL_BASE32) if len(joined) <= _SMALL else (_HEX, _BASE32)
    for regex, decode in ((hexes, hex_views), (base32, base32_views)):
        if spans := [match.span() for match in regex.finditer(joined)]:
            words = DecodedView(segments, joined, segments.bodies, _SAME_SIZE)
            yield from (ChainedView(view, words) for view in decode(_segments(spans, joined)))


def _decoded_views(data: bytes, signs: EncodingSigns) -> list[View]:
    views: list[View] = []
    if signs.hex_lines and (spans := hex_lines(data)):
        lines = _segments(spans, data)
        bodies = [body.replace(b"0x", b"").translate(None, _NOT_HEX) for body in lines.bodies]
        views += hex_views(Segments(lines.starts, lines.ends, bodies))
    if signs.base64_runs:
        views += _run_views(data)
    if not any(b"\x00" in view.data for view in views):
        return views
    # Right after its own view: what stands beside a text decides how far matches go that touch its ends.
    plain = [(view, ChainedView(WithoutNuls(view.data), view) if _is_utf16(view.data) else None) for view in views]
    return [view for pair in plain for view in pair if view is not None]


def _is_utf16(data: bytes) -> bool:
    if _MANY_NULS.search(data) is None:
        return False
    return (_SMALL_UTF16 if len(data) <= _SMALL else _UTF16).search(data) is not None


class Layer:
    """All views of the layer below, end to end, so that one pass scans them all."""

    def __init__(self, below: Layer | None, views: Sequence[View]) -> None:
        self.below = below
        self._views = views
        self.data = b"\n".join([view.data for view in views])

    @cached_property
    def _starts(self) -> list[int]:
        return part_starts(len(view.data) + 1 for view in self._views)

    def root_span(self, start: int, end: int) -> Span:
        """Return the span of the text at the bottom that a span of this layer came from."""
        index = bisect_right(self._starts, start) - 1
        base, size = self._starts[index], len(self._views[index].data)
        # A match may run over the line end into the next view; only the part in its own has an origin.
        span = self._views[index].origin(start - base, max(start - base + 1, min(end - base, size)))
        return span if self.below is None else self.below.root_span(*span)


class RootLayer(Layer):
    """The text as it is."""

    def __init__(self, data: bytes) -> None:
        self.below = None
        self.data = data

    def root_span(self, start: int, end: int) -> Span:
        return start, end


def next_layer(layer: Layer, data: bytes, signs: EncodingSigns = ANY_SIGN, most: int | None = None) -> Layer | None:
    """Return what `data`, all or the beginning of `layer`, reads as one decoding further; None for nothing.

    Of more than `most` bytes, enough to tell that it is more.
    """
    views: list[View] = []
    size = 0
    for view in _views(data, signs, is_text=layer.below is None):
        if view.data:
            views.append(view)
            size += len(view.data)
        if most is not None and size > most:
            break  # nobody will look at it, so it need not be made
    return Layer(layer, views) if views else None


def _views(data: bytes, signs: EncodingSigns, *, is_text: bool) -> Iterator[View]:
    # Only the text itself is folded: in decoded data, bytes beyond ASCII are rarely characters.
    if is_text:
        yield from _folded_views(data)
    yield from _unescaped_views(data, is_text=is_text)
    if signs.hex_lines or signs.base64_runs:
        yield from _decoded_views(data, signs)
