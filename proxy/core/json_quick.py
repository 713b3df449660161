"""JSON by a compiled reader, wherever that provably reads what the strict reader would. Pure.

orjson refuses what the strict reader refuses, but for three things: it keeps the last of two members of
one name, reads an integer past 64 bits as a float, and goes deeper. Its own spelling of what it read
shows whether any of that happened, so nothing is taken for granted: in doubt the strict reader reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from proxy.core.model import Json

LIMIT: Final = 1 << 20
"""Bytes up to which a body is read in one go: larger ones are read in steps, in which other threads have a turn."""
# What stands in the spelling of every float as large as an integer past 64 bits is.
_EXPONENT: Final = orjson.dumps(1e19).strip(b"0123456789")


def read_quickly(data: bytes) -> tuple[Json, bytes] | None:
    """Return the value of `data` and a spelling of it; None leaves it to the strict reader. Depth is not looked at."""
    if len(data) > LIMIT:
        return None
    try:
        value: Json = orjson.loads(data)
        encoded = orjson.dumps(value)
    except (ValueError, TypeError):
        return None
    return (value, encoded) if encoded == data or _is_whole(encoded, data) else None


def _is_whole(encoded: bytes, data: bytes) -> bool:
    """Say that `spelt` has all of `data`.

    A string has two quotes around it and, in either spelling, one in it for each that it holds, unless that
    is written as a number. So where the quotes are as many, no string was dropped, and so no member.
    """
    if _EXPONENT[-1:] in encoded and _EXPONENT in encoded:  # one character is looked for at a twentieth of the cost
        return False
    return encoded.count(b'"') == data.count(b'"') and b"\\u0022" not in data
