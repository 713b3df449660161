"""Server-sent events: split a byte stream into events, and encode one with other data.

Pure. An event that nobody changes is forwarded byte for byte, as soon as it is whole.
"""

from __future__ import annotations

import re
from heapq import merge
from typing import TYPE_CHECKING

from proxy.core.model import frozen
from proxy.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Comments and empty lines where an event could start. Atomic: "\r\n" is one line end, and must not be read as two.
_NOTHING = re.compile(rb"(?:(?::[^\r\n]*+)?+(?>\r\n|\n|\r))++")
_LINE_END = re.compile(rb"[\r\n]")
_BOM = b"\xef\xbb\xbf"


@frozen()
class SseEvent:
    """One block of a stream: its bytes, and the fields parsed from them."""

    raw: bytes
    event: bytes = b"message"
    data: bytes | None = None  # always UTF-8
    id: bytes | None = None

    def with_data(self, payloads: list[bytes]) -> bytes:
        """Return this event's bytes with other data, further `payloads` as more events; none may hold a line break."""
        # A comment in its place, because readers take silence for a dead connection.
        if not payloads:
            return b": removed\n\n"
        # Readers drop a byte order mark at the start; left in, it would be part of the first field's name.
        lines = self.raw.removeprefix(_BOM).splitlines()
        others = [line for line in lines if line and line.partition(b":")[0] != b"data"]
        first = b"\n".join([*others, b"data: " + payloads[0]]) + b"\n\n"
        return first + b"".join(b"event: message\ndata: " + more + b"\n\n" for more in payloads[1:])


class SseSplitter:
    """Cuts chunks into events. Comment lines are released at once, wherever the chunk ends."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[SseEvent]:
        """Return the events that `chunk` completes, to be taken before the next. Raises WireError `event_too_large`."""
        data: bytes | bytearray = chunk
        seen = 0
        if self._rest:
            # The last byte may be the first line feed of "\n\n", or half of the last "\r\n" of "\r\n\r\n".
            seen = len(self._rest) - 1
            self._rest += chunk
            data = self._rest
        end = 0
        for start, end in self._spans(data, seen):
            raw = data[start:end] if data is chunk else bytes(memoryview(data)[start:end])
            event = _parse(raw, raw if self._begun else raw.removeprefix(_BOM))
            self._begun = True
            yield event
        if data is chunk:
            self._rest += chunk[end:]
        else:  # once for all events: cutting off each by itself would move the rest every time
            del self._rest[:end]
        self._check(len(self._rest))

    @property
    def waiting(self) -> int:
        """Return how many bytes of an incomplete event are held."""
        return len(self._rest)

    def completes(self, chunk: bytes) -> bool:
        """Return whether `chunk` may complete an event; where it does not, `feed` only stores it."""
        is_comment = (self._rest or chunk)[:1] in (b":", b"\r", b"\n")
        return is_comment or next(_ends(self._rest[-1:] + chunk, 0), None) is not None

    def _spans(self, data: bytes | bytearray, seen: int) -> Iterator[tuple[int, int]]:
        """Return the span of each event in `data`, where none ends before `seen`; comments are one span together."""
        # Half of a line end may be released before the other half: the bytes that readers see stay the same.
        ends = _ends(data, seen)
        start = 0
        while start < len(data):
            if data[start] in b":\r\n":
                found = _LINE_END.search(data, max(start, seen)) and _NOTHING.match(data, start)
                end = found.end() if found else None
            else:
                end = next((end for end in ends if end > start), None)
                self._check((end or start) - start)
            if end is None:
                break
            yield start, end
            start = end

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise WireError("event_too_large", f"a server-sent event of more than {self._limit} bytes")


def _ends(data: bytes | bytearray, start: int) -> Iterator[int]:
    """Return where each event ends, from left to right: after a line end that follows another line end."""
    # Servers send "\n\n" or "\r\n\r\n". The standard has "\r", too, and lets all three be mixed: what is no end here
    # but is one to the client would let an event reach it unread.
    seconds = _after(data, b"\n", b"\r\n", start)
    if data.find(b"\r", start) >= 0:
        seconds = merge(seconds, _after(data, b"\r", b"\r", start))
    for second in seconds:
        yield second + (2 if data.startswith(b"\r\n", second) else 1)


def _after(data: bytes | bytearray, mark: bytes, others: bytes, at: int) -> Iterator[int]:
    # `find` passes over a long line in one step; a regex would look at each of its bytes.
    while 0 < (at := data.find(mark, at) + 1) < len(data):
        if data[at] in others:
            yield at


def _parse(raw: bytes, text: bytes) -> SseEvent:
    kind, event_id, data = b"message", None, list[bytes]()
    for start, end in _lines(text):
        colon = text.find(b":", start, end)
        if colon < 0:
            colon = end
        name = text[start:colon]
        value = text[colon + (2 if text.startswith(b" ", colon + 1) else 1) : end]
        if name == b"data":
            data.append(value if value.isascii() else value.decode("utf-8", "replace").encode())
        elif name == b"event":
            kind = value
        elif name == b"id":
            event_id = value
    # By the standard an event with empty data is never dispatched. The priming event of 2025-11-25 is one: it only
    # gives the id to resume from.
    return SseEvent(raw, kind or b"message", b"\n".join(data) or None, event_id)


def _lines(text: bytes) -> Iterator[tuple[int, int]]:
    """Return the span of each line that is not empty; none is copied, because data lines are long."""
    start, newline = 0, -1
    while start < len(text):
        if newline < start:
            newline = text.find(b"\n", start)
            if newline < 0:
                newline = len(text)
        end = text.find(b"\r", start, newline)
        if end < 0:
            end = newline
        if end > start:
            yield start, end
        start = end + 1
