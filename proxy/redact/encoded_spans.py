"""Where a text has runs of characters that may be an encoding of something: base64, hexadecimal, base32.

Pure. Hyperscan finds each kind in a pass of its own, which is faster than all in one; without hyperscan RE2 finds the
same spans, slower.
"""

from __future__ import annotations

import functools
import re
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from proxy.redact.detectors import compile_bytes
from proxy.redact.hyperscan_db import AVAILABLE, PatternSet

if TYPE_CHECKING:
    from proxy.redact.views import Span

# Shorter runs are ordinary words and names, and hold 14 bytes of base64 at most: they are not decoded.
SHORTEST: Final = 20
_LARGE: Final = 1 << 17
# So many runs are searched for one by one, if there are so many bytes for each.
_FEW: Final = 8
_GAP: Final = 1 << 11
_SAMPLE: Final = 256
_SAMPLES: Final = 31
_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_SPACED: Final = bytes(byte if byte in _ALPHABET else ord(" ") for byte in range(256))
_BASE64: Final = compile_bytes(rf"[A-Za-z0-9+/_-]{{{SHORTEST},}}={{0,2}}")
HEX_LINE: Final = r"(?:[0-9A-Fa-f]{2}[\s:,;-]{1,2}(?:0x)?){12}"
_HEX_LINES: Final = compile_bytes(rf"{HEX_LINE}(?:[0-9A-Fa-f]{{2}}[\s:,;-]{{0,2}}(?:0x)?)*")
# The longest that the twelve pairs can be before hyperscan reports them.
_HEX_LINE_SIZE: Final = 12 * 6
HEX: Final = "[0-9A-Fa-f]{26,}"
BASE32: Final = "[A-Z2-7]{22,}={0,6}|[a-z2-7]{22,}={0,6}"
LONG_DIGITS: Final = ("[0-9A-Fa-f]{26}", "[A-Z2-7]{22}", "[a-z2-7]{22}")
RUN: Final = rf"[A-Za-z0-9+/_-]{{{SHORTEST}}}"
# A run at the end of a line, where the line end may be written out as a backslash and a letter.
BROKEN_RUN: Final = rf"{RUN}={{0,2}}[ \t]{{0,4}}[\r\n\\]"
LONGEST_BREAK: Final = 5  # bytes after the run and its padding
# Matches once for each run, SHORTEST characters after its start, and not again at every character of it.
_START: Final = rf"(?:^|[^A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{SHORTEST}}}"
# A class repeated, with nothing after it to backtrack for: as linear as RE2, and quicker to start.
_REST: Final = re.compile(rb"[A-Za-z0-9+/_-]+={0,2}")
_PADDED: Final = re.compile(rb"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{%d,}={0,2}" % SHORTEST)


def base64_runs(data: bytes) -> list[Span]:
    """Return the runs of base64 characters, with their padding."""
    if len(data) > _LARGE and _is_dense(data):
        return _long_words(data)
    if not AVAILABLE:
        return _spans(_BASE64, data)
    found, at = first_runs(data)
    if at == len(data):
        return found
    rest = _REST.match
    # Hyperscan reports where the first SHORTEST characters end, so `rest` always matches the last of them.
    more = _patterns(_START, every_match=True).ends(data[at:])
    return found + [(at + to - SHORTEST, rest(data, at + to - 1).end()) for to in more]  # type: ignore[union-attr]


def first_runs(data: bytes) -> tuple[list[Span], int]:
    """Return the first few runs, with their padding, and where others may follow: the end of `data` for none."""
    found: list[Span] = []
    at = 0
    # Hyperscan skips through a text without runs in a tenth of the time that it takes to report all that there are.
    for _ in range(min(_FEW, len(data) // _GAP)):
        if (to := _patterns(RUN).first_end(data[at:])) is None:
            return found, len(data)
        start, last = at + to - SHORTEST, at + to - 1
        at = _REST.match(data, last).end()  # type: ignore[union-attr]
        found.append((start, at))
    return found, at


def _is_dense(data: bytes) -> bool:
    """Guess from samples whether so many words of a large text are long that splitting it is the fastest way."""
    samples = b" ".join(data[at : at + _SAMPLE] for at in range(0, len(data), len(data) // _SAMPLES))
    words = samples.translate(_SPACED).split()
    return len([word for word in words if len(word) >= SHORTEST]) * _SAMPLES > len(words)


def _long_words(data: bytes) -> list[Span]:
    if b"=" in data:  # padding is no separator, and only a regex keeps it with its run
        return [match.span() for match in _PADDED.finditer(data)]
    sizes = [len(word) for word in data.translate(_SPACED).split(b" ")]
    starts = accumulate((size + 1 for size in sizes), initial=0)
    return [(start, start + size) for start, size in zip(starts, sizes, strict=False) if size >= SHORTEST]


def hex_lines(data: bytes) -> list[Span]:
    """Return the stretches of hexadecimal digits in pairs that have separators between the pairs."""
    if not AVAILABLE:
        return _spans(_HEX_LINES, data)
    first = _patterns(HEX_LINE).first_end(data)
    return [] if first is None else _spans(_HEX_LINES, data, max(0, first - _HEX_LINE_SIZE))


def has_long_digits(data: bytes) -> bool:
    """Return whether `HEX` or `BASE32` may match; never False where one does."""
    return not AVAILABLE or _patterns(*LONG_DIGITS).any_in(data)


def _spans(regex: Any, data: bytes, position: int = 0) -> list[Span]:
    return [match.span() for match in regex.finditer(data, position)]


@functools.cache
def _patterns(*expressions: str, every_match: bool = False) -> PatternSet:
    return PatternSet(expressions, every_match=every_match)
