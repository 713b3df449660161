"""Readings of a string: every text that a server might take it for. Pure, no I/O.

A value reaches a server through decoders that the proxy cannot see. So a string is
judged as it is, with invisible characters dropped and compatibility forms
folded (NFKC), and percent-decoded again until nothing changes.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

# Characters that show nothing and that some servers drop: soft hyphens, joiners, fillers, direction
# marks, variation selectors, tags. With one of them inside, "/e<U+200B>tc" would not be "/etc".
_SPANS: Final = (
    "00AD 034F 061C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 "
    "FFF0-FFFB 1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"
)
_PAIRS: Final = [span.partition("-") for span in _SPANS.split()]
_RANGES: Final = [(int(low, 16), int(high or low, 16)) for low, _, high in _PAIRS]
INVISIBLE: dict[int, None] = dict.fromkeys(code for low, high in _RANGES for code in range(low, high + 1))
# The same, for the brackets of a regular expression.
INVISIBLE_CLASS = "".join(f"{chr(low)}-{chr(high)}" for low, high in _RANGES)

# "%2525252f" is a slash to a chain of enough decoders. What is still encoded after this many is a problem.
MAX_DECODES = 8
NOT_UTF8 = "percent-encoded bytes that are not UTF-8"
_PERCENT_U: Final = re.compile("%u([0-9a-fA-F]{4})")
_HALF: Final = re.compile(r"\\u[dD]|[\ud800-\udfff]")
_BLANKS: Final = " \t\r\n\ufeff"
_OPENINGS: Final = frozenset('{["')


class AmbiguousError(Exception):
    """A value that different servers would read differently."""


class Text(NamedTuple):
    """The readings of one string, itself first; `problem` says why they may not be all there are, or is None."""

    readings: tuple[str, ...]
    problem: str | None = None


def clean(text: str) -> str:
    """Drop invisible characters and fold compatibility forms."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text.translate(INVISIBLE))


def fold(text: str) -> str:
    """Return the form that texts share which differ only in looks or case."""
    # Cleaned again at the end: folding the case of a clean text may bring a compatibility form back.
    return text.casefold() if text.isascii() else clean(clean(text).casefold())


def has_one_reading(raw: str) -> bool:
    """Return whether no decoder would change the string."""
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
    """Return the text decoded once, and whether the bytes were UTF-8."""
    if "%" not in text:
        return text, True
    # Some Windows servers still take %u002e for a dot.
    plain = _PERCENT_U.sub(lambda found: chr(int(found[1], 16)), text.replace("%U", "%u"))
    try:
        data = unquote_to_bytes(plain)
    except UnicodeEncodeError:
        raise AmbiguousError("half a character, percent-encoded") from None
    try:
        return data.decode("utf-8"), True
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), False


def looks_like_json(text: str) -> bool:
    """Return whether a text may hold a JSON object, array or string."""
    return text.lstrip(_BLANKS)[:1] in _OPENINGS


def parse_embedded_json(text: str) -> Any:
    """Return the JSON object, array or string in `text`, or None; raise AmbiguousError where parsers would disagree."""
    if not looks_like_json(text):
        return None
    try:
        parsed = json.loads(text.lstrip(_BLANKS), object_pairs_hook=_no_duplicates)
        if _HALF.search(text):
            # Half a surrogate pair is a character to some parsers, and no text to others.
            json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise AmbiguousError("JSON with half a character inside a string") from None
    except RecursionError:
        raise AmbiguousError("JSON nested too deeply inside a string") from None
    except ValueError:
        return None
    return parsed


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    # Some parsers take the first of two equal keys, some the last.
    if len(made) != len(pairs):
        raise AmbiguousError("JSON with a key twice inside a string")
    return made
