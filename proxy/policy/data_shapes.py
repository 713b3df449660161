"""Whether a word is data rather than a name: drawn at random, or a text in an encoding. Pure, no I/O."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

from proxy.core.randomness import surprise

if TYPE_CHECKING:
    from collections.abc import Callable

# Bits a character: names, words and paths of honest traffic have under 5.5, random letters and digits over 6.5.
RANDOM_BITS: Final = 6.2
SHORTEST_RANDOM: Final = 16
LONGEST: Final = 1 << 14
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})+")
_BASE32: Final = re.compile(r"(?:[A-Z2-7]{8,}|[a-z2-7]{8,})=*")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_SIGNS: Final = re.compile(rb"[\w .,:;@/=&?'\"()\[\]{}<>\n\r\t+*#%$!|\\^~`-]*")
_LETTERS: Final = re.compile(rb"[A-Za-z ]")
_SURELY_TEXT: Final = 16  # bytes; so many are not all printable by chance
_MAX_DEPTH: Final = 4


def is_random(word: str, shortest: int = SHORTEST_RANDOM) -> bool:
    """Return whether a word looks drawn at random from letters and digits; hashes in hexadecimal do not count."""
    if len(word) < shortest or word.isdigit() or _HEX.fullmatch(word):
        return False
    return surprise(word.encode("utf-8", "ignore")) >= RANDOM_BITS and not (word.isalpha() and word.islower())


def hidden_text(word: str, shortest: int = 8) -> str | None:
    """Return the text that a word is an encoding of, to four encodings deep; None for a word that is none."""
    found = None
    for _ in range(_MAX_DEPTH):
        inner = _decoded(word[:LONGEST], shortest)
        if inner is None:
            return found
        found = word = inner
    return found


def _decoded(word: str, shortest: int) -> str | None:
    for fits, decode in _DECODERS:
        if fits.fullmatch(word) is None:
            continue
        try:
            data = decode(word)
        except (binascii.Error, ValueError):
            continue
        if _is_text(data, shortest):
            return data.decode()
    return None


def _is_text(data: bytes, shortest: int) -> bool:
    """Return whether bytes are plain text: printable ASCII, and if there is little of it, mostly letters."""
    if len(data) < shortest or not data.isascii() or _SIGNS.fullmatch(data) is None:
        return False
    return len(data) >= _SURELY_TEXT or len(_LETTERS.findall(data)) * 2 >= len(data)


def _unhex(word: str) -> bytes:
    return bytes.fromhex(word)


def _unbase32(word: str) -> bytes:
    bare = word.rstrip("=").upper()
    return base64.b32decode(bare + "=" * (-len(bare) % 8))


def _unbase64(word: str) -> bytes:
    bare = word.rstrip("=").translate(str.maketrans("-_", "+/"))
    return base64.b64decode(bare + "=" * (-len(bare) % 4))


_DECODERS: Final[tuple[tuple[re.Pattern[str], Callable[[str], bytes]], ...]] = (
    (_HEX, _unhex),
    (_BASE32, _unbase32),
    (_BASE64, _unbase64),
)
