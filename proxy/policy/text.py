"""Readings of a string: every text a server might take it for. Pure, no I/O.

A value reaches a server through decoders the proxy cannot see. So a string is
judged as it stands, with invisible characters dropped and compatibility forms
folded (NFKC), and percent-decoded as often as it can be.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

_RANGES = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
INVISIBLE: dict[int, None] = dict.fromkeys(code for low, high in _RANGES for code in range(low, high + 1))
INVISIBLE_CLASS = "".join(f"{chr(low)}-{chr(high)}" for low, high in _RANGES)
"""The same, as what stands in the brackets of a regular expression."""

MAX_DECODES = 8
NOT_UTF8 = "percent-encoded bytes that are not UTF-8"


class Text(NamedTuple):
    """The readings of one string, the string itself first.

    `problem` says why the readings may not be all there are, or is None.
    """

    readings: tuple[str, ...]
    problem: str | None = None


def clean(text: str) -> str:
    """Drop invisible characters and fold compatibility forms."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text.translate(INVISIBLE))


def fold(text: str) -> str:
    """Return the form under which spellings that differ only in looks or case are one."""
    return text.casefold() if text.isascii() else clean(clean(text).casefold())


def has_one_reading(raw: str) -> bool:
    """Return whether a string can be read as it stands alone."""
    return "%" not in raw and raw.isascii()


def read_text(raw: str) -> Text:
    """Return every reading of `raw`."""
    if has_one_reading(raw):
        return Text((raw,))
    seen = {raw: None}
    current = raw
    problem = None
    for _ in range(MAX_DECODES):
        cleaned = clean(current)
        seen[cleaned] = None
        decoded, clear = _percent_decode(cleaned)
        if not clear:
            problem = NOT_UTF8
        if decoded == current:
            return Text(tuple(seen), problem)
        seen[decoded] = None
        current = decoded
    return Text(tuple(seen), f"encoded more than {MAX_DECODES} times over")


def _percent_decode(text: str) -> tuple[str, bool]:
    """Decode once, and tell whether the bytes were UTF-8."""
    if "%" not in text:
        return text, True
    data = unquote_to_bytes(_decode_percent_u(text))
    try:
        return data.decode("utf-8"), True
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), False


def _decode_percent_u(text: str) -> str:
    """Read the `%u002e` that some Windows servers still take for a dot."""
    head, *rest = text.replace("%U", "%u").split("%u")
    if not rest:
        return text
    out = [head]
    for part in rest:
        digits = part[:4]
        if len(digits) == 4 and all(c in "0123456789abcdefABCDEF" for c in digits):
            out.append(chr(int(digits, 16)) + part[4:])
        else:
            out.append("%u" + part)
    return "".join(out)
