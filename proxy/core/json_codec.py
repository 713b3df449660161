"""JSON text of values and back: fast, or without keeping other threads waiting. Pure.

`json.dumps` encodes a string of 5 MB in one go of 25 ms, in which nothing else in the process runs. `encode_json`
encodes a long string in steps of a millisecond or two, and long lists in parts. The text is that of `json.dumps`.

orjson takes a tenth of the time for a value that is not heavy. What it cannot encode, or would encode as something
else (integers past 64 bits, half a surrogate pair, NaN), is left to `encode_json`. Either text reads back as the same
value, but a small float may be `1e-7` or `1e-07`. So what is hashed is encoded by `encode_canonical`: a value has one
hash, whichever encoder took it.

orjson refuses what the strict reader refuses, but for three things: it keeps the last of two members of one name,
reads an integer past 64 bits as a float, and accepts deeper nesting. `read_quickly` takes its value only where the
encoding of it proves that none of the first two happened; the caller checks the depth.
"""

from __future__ import annotations

import json
from itertools import batched
from json.encoder import encode_basestring_ascii
from math import inf
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.model import Json

LONG: Final = 1 << 16
"""Characters from which a string is encoded in steps."""
MANY: Final = 1 << 10
"""Members from which a list or an object is encoded in parts."""
DEPTH: Final = 8
"""Levels in which long strings are searched for; below, all is encoded at once."""
_AS_JSON_DOES: Final = (
    orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_SMALLEST: Final = 1e-4
_LARGEST: Final = 1e16
"""Floats from the one to below the other are written without an exponent, by either encoder alike."""
# One of these is in orjson's text of every other float; it writes null for NaN and infinity.
_SIGNS: Final = (b"null", b"0.0000", b"e-", orjson.dumps(_LARGEST).strip(b"0123456789"))
_WALKED: Final = 1 << 11
"""Bytes past which a text is not searched: long texts are long strings, and a walk over the value passes them by."""
LIMIT: Final = 1 << 20
"""Bytes up to which a body is read in one go: larger ones are read in steps, in which other threads have a turn."""
# In the text of every float that is as large as an integer of more than 64 bits.
_EXPONENT: Final = orjson.dumps(1e19).strip(b"0123456789")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_CONTROLS: Final = {chr(code): _SHORT.get(chr(code), f"\\u{code:04x}") for code in range(32)}
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', **_CONTROLS}
_ASCII_ESCAPES: Final = {**_ESCAPES, "\x7f": "\\u007f"}


def encode_json(value: Any, *, ensure_ascii: bool = False, allow_nan: bool = True) -> str:
    """Return the compact JSON text of `value`. Raises as `json.dumps` does."""
    encoder = _ENCODERS[ensure_ascii, allow_nan]
    return encoder.at_once(value) if not is_heavy(value) else "".join(encoder.pieces(value, DEPTH))


def encode_fast(value: Any) -> bytes | None:
    """Return compact JSON of `value`; None where only `encode_json` can encode it."""
    encoded = _dumped(value)
    # orjson writes NaN as null. A null in the text may be a real one, so then every float is looked at.
    return encoded if encoded is None or b"null" not in encoded or _floats_lie_in(value, 0.0, inf) else None


def encode_canonical(value: Any) -> bytes | None:
    """Return the bytes that `encode_json` would make of `value`; None where only that can encode it."""
    encoded = _dumped(value)
    if encoded is not None and len(encoded) > _WALKED:
        return encoded if _floats_lie_in(value, _SMALLEST, _LARGEST) else None
    if encoded is not None:
        # Four searches of a short text are much cheaper than a walk over the value; most have none of these.
        for sign in _SIGNS:
            if sign in encoded:
                return encoded if _floats_lie_in(value, _SMALLEST, _LARGEST) else None
    return encoded


def _dumped(value: Any) -> bytes | None:
    try:
        return orjson.dumps(value, option=_AS_JSON_DOES)
    except TypeError:
        return None


def _floats_lie_in(value: Any, low: float, high: float) -> bool:
    """Return whether every float in `value` is zero or, but for its sign, from `low` to below `high`; NaN is not."""
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float):
            if item and not low <= abs(item) < high:
                return False
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
    return True


def is_heavy(value: Any, depth: int = DEPTH) -> bool:
    """Return whether encoding `value` may take long; for a light value that takes a few steps."""
    if isinstance(value, str):
        return len(value) > LONG
    if not isinstance(value, (dict, list)) or depth == 0:
        return False
    if len(value) > MANY:
        return True
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, str):
            if len(child) > LONG:
                return True
        elif isinstance(child, (dict, list)) and is_heavy(child, depth - 1):
            return True
    return False


class _Encoder:
    def __init__(self, *, ensure_ascii: bool, allow_nan: bool) -> None:
        self._ascii = ensure_ascii
        self.at_once = json.JSONEncoder(ensure_ascii=ensure_ascii, allow_nan=allow_nan, separators=(",", ":")).encode

    def pieces(self, value: Any, depth: int) -> Iterator[str]:
        if not is_heavy(value, depth):
            yield self.at_once(value)
        elif isinstance(value, str):
            yield from self._string(value)
        elif isinstance(value, list):
            yield from self._list(value, depth)
        else:
            yield from self._object(value, depth)

    def _list(self, items: list[Any], depth: int) -> Iterator[str]:
        yield "["
        if len(items) > MANY:
            yield ",".join(self.at_once(list(part))[1:-1] for part in batched(items, MANY))
        else:
            for index, item in enumerate(items):
                yield "," if index else ""
                yield from self.pieces(item, depth - 1)
        yield "]"

    def _object(self, members: dict[str, Any], depth: int) -> Iterator[str]:
        yield "{"
        if len(members) > MANY:
            yield ",".join(self.at_once(dict(part))[1:-1] for part in batched(members.items(), MANY))
        else:
            for index, (key, member) in enumerate(members.items()):
                yield "," if index else ""
                yield f"{self.at_once(str(key))}:"
                yield from self.pieces(member, depth - 1)
        yield "}"

    def _string(self, text: str) -> Iterator[str]:
        yield '"'
        if self._ascii and not text.isascii():
            for start in range(0, len(text), LONG):
                yield encode_basestring_ascii(text[start : start + LONG])[1:-1]
        else:
            for character, escape in (_ASCII_ESCAPES if self._ascii else _ESCAPES).items():
                if character in text:
                    text = text.replace(character, escape)
            yield text
        yield '"'


_ENCODERS: Final = {
    (ensure_ascii, allow_nan): _Encoder(ensure_ascii=ensure_ascii, allow_nan=allow_nan)
    for ensure_ascii in (False, True)
    for allow_nan in (False, True)
}


def read_quickly(data: bytes) -> tuple[Json, bytes] | None:
    """Return the value of `data` and its encoding; None leaves it to the strict reader. Depth is not checked."""
    if len(data) > LIMIT:
        return None
    try:
        value: Json = orjson.loads(data)
        encoded = orjson.dumps(value)
    except (ValueError, TypeError):
        # Not a refusal yet: the strict reader names the reason, and decides for what orjson alone cannot read.
        return None
    # Equal bytes prove it all: nothing was dropped, and no number was changed. SDKs that write compact JSON get here.
    return (value, encoded) if encoded == data or _is_whole(encoded, data) else None


def _is_whole(encoded: bytes, data: bytes) -> bool:
    """Return whether `encoded` has all of `data`, which differs from it in white space, escapes or numbers."""
    # An integer past 64 bits was read as a float, and such a float is written with this exponent. A real float of that
    # size is left to the strict reader, too. Its last character is searched for first: that costs a twentieth.
    if _EXPONENT[-1:] in encoded and _EXPONENT in encoded:
        return False
    # Of two members of one name the first was dropped, and with it the two quotes of its name. Every string has two
    # quotes around it and, in either text, one for each that it holds, unless that one is written as \u0022. So
    # where the quotes are as many, no string was dropped, and so no member.
    return encoded.count(b'"') == data.count(b'"') and b"\\u0022" not in data
