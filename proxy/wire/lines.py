"""Messages on lines, as stdio carries them. Pure.

Readers differ in what ends a line: a line feed alone, a bare carriage return too, or any of
Unicode's line breaks. `as_line` spells a message so that it is one line to all of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from proxy.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.model import Json

BLANK = b" \t\r\n"


def as_line(value: Json) -> bytes:
    """Spell `value` on one line of ASCII, which means the same in every charset.

    Raises WireError `not_finite` where a number is none of JSON's.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"
    except ValueError as error:
        raise WireError("not_finite", "a number is NaN or infinite") from error


class TooLong:
    """Stands for a line past the limit, which is not kept."""


TOO_LONG = TooLong()


class LineSplitter:
    """Cuts bytes into lines at line feeds, whatever pieces they come in, and keeps no more than `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes | TooLong]:
        """Give each line that `data` ends, without its end; blank ones are left out."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._keep(piece)
            yield from self._take()
        self._keep(rest)

    def end(self) -> Iterator[bytes | TooLong]:
        """Give what stands after the last line feed: some readers take it for a line."""
        yield from self._take()

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _take(self) -> Iterator[bytes | TooLong]:
        line, size = b"".join(self._pieces), self._size
        self._pieces.clear()
        self._size = 0
        if size > self._limit:
            yield TOO_LONG
        elif line.strip(BLANK):
            yield line
