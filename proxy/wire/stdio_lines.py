"""Messages on lines, as stdio carries them. Pure.

Readers differ in what ends a line: a line feed alone, a bare carriage return too (Python), or any of Unicode's line
breaks. `as_line` encodes a message so that it is one line to all of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.model import Json, MessageId

BLANK = b" \t\r\n"
EDGE = 512
_ID = rb'"id"\s*:\s*(?:(?P<number>-?[0-9]{1,20})|"(?P<text>[^"\\\x00-\x1f]{1,200})")\s*'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb"[,}]")
_ID_LAST = re.compile(rb",\s*" + _ID + rb"\}\s*\Z")


def as_line(value: Json) -> bytes:
    """Encode `value` as one line of ASCII, the same in all charsets. Raises WireError `not_finite` for NaN and such."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"
    except ValueError as error:
        raise WireError("not_finite", "a number is NaN or infinite") from error


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line past the limit; only its first and last bytes are stored."""

    head: bytes
    tail: bytes


def edge_id(line: bytes | TooLong) -> MessageId | None:
    """Return the id of a message that cannot be parsed, where it stands first or last in it, as SDKs write it."""
    # Only there is it the message's own and not one of an object inside.
    head, tail = (line.head, line.tail) if isinstance(line, TooLong) else (line[:EDGE], line[-EDGE:])
    found = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    if found is None:
        return None
    return int(found["number"]) if found["number"] else found["text"].decode("utf-8", "replace")


class LineSplitter:
    """Cuts bytes into lines at line feeds, whatever chunks they come in; stores no more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._past: TooLong | None = None
        self._total = 0
        self.ended = 0  # bytes up to the end of the last line

    def feed(self, data: bytes) -> Iterator[bytes | TooLong]:
        """Return each line that `data` ends, without its end; blank ones are left out."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._store(piece)
            self._total += len(piece) + 1
            self.ended = self._total
            yield from self._take()
        self._store(rest)
        self._total += len(rest)

    def end(self) -> Iterator[bytes | TooLong]:
        """Return what stands after the last line feed: Python's readers run a last line without one."""
        yield from self._take()

    def _store(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._past is not None:
            self._past = TooLong(self._past.head, (self._past.tail + piece[-EDGE:])[-EDGE:])
        elif self._size > self._limit:
            start = b"".join([*self._pieces, piece])
            self._past = TooLong(start[:EDGE], start[-EDGE:])
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _take(self) -> Iterator[bytes | TooLong]:
        line, past = b"".join(self._pieces), self._past
        self._pieces.clear()
        self._size, self._past = 0, None
        if past is not None:
            yield past
        elif line.strip(BLANK):
            yield line
