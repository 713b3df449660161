"""Reads a chunked body as it arrives. Pure."""

from __future__ import annotations

import re

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[\t -~]*)?[ \t]*\r\n")
# Trailers are dropped, but lines that are none end the body badly, as in the layers.
_TRAILERS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[ \t]*(?:[!-~](?:[\t -~]*[!-~])?)?[ \t]*\r\n)*\r\n")
MAX_LINE = 16 << 10
"""Bounds a size line with its extensions, and the trailers, which are dropped."""


class ChunkReader:
    """Takes the bytes of a body, and gives what the chunks hold."""

    def __init__(self) -> None:
        self._rest = b""
        self._left = 0
        self.ended = False
        self.broken = False
        """Whether this is no chunked body from here on; what came before it counts."""
        self.surplus = b""
        """What came after the end of the body."""

    def feed(self, data: bytes) -> bytes:
        """Return what of the body has arrived with `data`."""
        data, self._rest = self._rest + data, b""
        out: list[bytes] = []
        at = 0
        while at < len(data) and not self.ended and not self.broken:
            if self._left > 2:
                taken = data[at : at + self._left - 2]
                out.append(taken)
                at += len(taken)
                self._left -= len(taken)
            elif self._left:
                self.broken = not b"\r\n".startswith(data[at : at + 2])
                if self.broken or len(data) - at < 2:
                    break
                at += 2
                self._left = 0
            elif (next_at := self._begin(data, at)) is None:
                break
            else:
                at = next_at
        if self.ended:
            self.surplus = data[at:]
        else:
            self._rest = data[at:]
        return b"".join(out)

    def _begin(self, data: bytes, at: int) -> int | None:
        """Return where the next chunk's bytes begin, or where the body ends; None where its size has yet to come."""
        size = _SIZE.match(data, at)
        if size is None:
            self.broken = b"\n" in data[at:] or len(data) - at > MAX_LINE
            return None
        length = int(size[1], 16)
        if length:
            self._left = length + 2
            return size.end()
        # The last chunk: an empty line, or trailers before one.
        end = data.find(b"\r\n\r\n", size.end() - 2)
        if end < 0:
            self.broken = len(data) - at > MAX_LINE
            return None
        self.broken = _TRAILERS.fullmatch(data, size.end(), end + 4) is None
        self.ended = not self.broken
        return end + 4 if self.ended else None
