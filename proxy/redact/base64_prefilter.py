"""Whether runs of base64 characters, which paths and long names are too, can be anything but noise.

Pure. Decoding them for nothing is most of what scanning a short text costs, so one pass over the encoded characters
asks first what decoding could bring to light. It says noise only where none of these is there:

- six bytes in a row that are text (`_TEXT`), at whatever byte of a group they begin. Every built-in detector needs as
  many printable ones, but for those that need a word of `WORDS` near; UTF-16, and what is encoded once more, is longer;
- a word of `WORDS`, or the beginning of an escape;
- digits of other encodings, or a run that ends a line and may continue in the next.

The line ends put between decoded runs are in none of these but the first, and there in no detector. A test proves it
of each built-in detector by walking its regex. Of a policy's own detectors it holds where all keywords are as long; of
the rest nothing is known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from proxy.redact.detector_catalog import DetectorCatalog, builtin
from proxy.redact.encoded_spans import BROKEN_RUN, LONG_DIGITS
from proxy.redact.views import ESCAPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


LEAST_TEXT: Final = 6  # printable bytes that a finding has in a row
WORDS: Final = ("pwd", "pass", "curl", "://")  # one of them is in each keyword of a detector that may find fewer
LARGEST_NOISE: Final = 1 << 16  # bytes past which a text has so many runs that one of them looks like something

_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
# base64url has other characters for the last two values; a run may be of either alphabet.
_OTHERS: Final = {62: "-", 63: "_"}
_ANY: Final = frozenset(range(256))
# NUL counts as text, because plain text in UTF-16 has one in every pair.
_TEXT: Final = frozenset((0, *range(9, 14), *range(32, 127)))
_LEAST: Final = re.compile(rb"[\0\t-\r -~]{%d}" % LEAST_TEXT)
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


def unproven(catalog: DetectorCatalog) -> frozenset[int]:
    """Return the indexes of the detectors that may find something in noise."""
    proven = {id(detector) for detector in builtin().detectors}
    # A finding needs one of its keywords near, and a long keyword alone is LEAST_TEXT printable bytes in a row.
    return frozenset(
        index
        for index, detector in enumerate(catalog.detectors)
        if id(detector) not in proven
        and not (
            detector.keywords
            and all(len(word) >= LEAST_TEXT and word.isascii() and word.isprintable() for word in detector.keywords)
        )
    )


def has_text(data: bytes) -> bool:
    """Return whether `data` has so many bytes of text in a row that no noise holds it."""
    return _LEAST.search(data) is not None


def clue_patterns() -> list[str]:
    """Return patterns; in a text up to `LARGEST_NOISE`, one of them matches wherever a run may be no noise."""
    # Keywords are compared in lower case, so each letter of a word may have been encoded in either case.
    words = [[frozenset((letter.lower() + letter.upper()).encode()) for letter in word] for word in WORDS]
    # The first three bytes of an escape, since markers differ in length: more found than there is, never less.
    escapes = [[*(frozenset((byte,)) for byte in escape.marker), _HEX, _HEX][:3] for escape in ESCAPES]
    texts = [[_TEXT] * LEAST_TEXT]
    return [_anywhere(texts), _anywhere(words), _anywhere(escapes), *LONG_DIGITS, BROKEN_RUN]


def _anywhere(texts: Iterable[Sequence[frozenset[int]]]) -> str:
    # The same bytes have three encodings, by the byte of a group of three that they begin at.
    return "|".join(in_base64(text, offset) for text in texts for offset in range(3))


def in_base64(text: Sequence[frozenset[int]], offset: int) -> str:
    """Return a pattern for the base64 of bytes, each one of several, that begin at byte `offset` of a group."""
    characters: list[str] = []
    before = _ANY
    for number, byte in enumerate(text):
        at = (offset + number) % 3
        # A character has six bits: the lower ones of the byte before, and the upper ones of this byte.
        lower, drop = (0, 3, 15)[at], (2, 4, 6)[at]
        values = {(left & lower) << (8 - drop) | right >> drop for left in before for right in byte}
        characters.append(_one_of(values))
        # The third byte of a group has a character of its own. After the last byte it is left open: what remains of
        # that byte may be in a character that a run without padding does not have.
        if at == 2 and number < len(text) - 1:
            characters.append(_one_of({each & 63 for each in byte}))
        before = byte
    return "".join(characters)


def _one_of(values: Iterable[int]) -> str:
    signs = "".join(_ALPHABET[value] + _OTHERS.get(value, "") for value in sorted(values))
    return f"[{re.escape(signs)}]"
