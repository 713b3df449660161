"""Server-sent events: split a byte stream into events, and write one anew.

Pure. An event nobody changes is passed on byte for byte, as soon as it is whole.
"""

from __future__ import annotations

import re
from heapq import merge
from typing import TYPE_CHECKING

from proxy.errors import WireError
from proxy.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

# Atomic: "\r\n" is one line end and must not be read as two. Comments and empty lines where an event could start.
_NOTHING = re.compile(rb"(?:(?::[^\r\n]*+)?+(?>\r\n|\n|\r))++")
_LINE_END = re.compile(rb"[\r\n]")
_BOM = b"\xef\xbb\xbf"


@frozen()
class Event:
    """One block of a stream: the bytes it came as, and what they say."""

    raw: bytes
    event: bytes = b"message"
    data: bytes | None = None
    """Always UTF-8."""
    id: bytes | None = None

    def with_data(self, payloads: list[bytes]) -> bytes:
        """Give this event's bytes with other data; further payloads become events of their own.

        None of `payloads` may hold a line break. No payloads: a comment, so that
        the reader's keep-alive clock still runs.
        """
        if not payloads:
            return b": removed\n\n"
        # A byte order mark would make its line's field another one than readers see.
        lines = self.raw.removeprefix(_BOM).splitlines()
        kept = [line for line in lines if line and line.partition(b":")[0] != b"data"]
        first = b"\n".join([*kept, b"data: " + payloads[0]]) + b"\n\n"
        return first + b"".join(b"event: message\ndata: " + more + b"\n\n" for more in payloads[1:])


class Splitter:
    """Cuts chunks into events. Comment lines leave at once, wherever the chunk ends."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Give the events completed by `chunk`; all are to be taken before the next chunk.

        Raises WireError `event_too_large` where one grows past the limit, after those before it.
        """
        data: bytes | bytearray = chunk
        seen = 0
        if self._rest:
            seen = len(self._rest) - 1  # the last byte may be half of what ends an event
            self._rest += chunk
            data = self._rest
        end = 0
        for start, end in self._spans(data, seen):
            yield self._event(bytes(data[start:end]))
        if data is chunk:
            self._rest += chunk[end:]
        else:  # once for all events: cutting each off by itself would move the rest every time
            del self._rest[:end]
        self._check(len(self._rest))

    @property
    def waiting(self) -> int:
        """How many bytes have come of an event that is not whole yet."""
        return len(self._rest)

    def _spans(self, data: bytes | bytearray, seen: int) -> Iterator[tuple[int, int]]:
        """Give where each event in `data` stands, of which none ends before `seen`.

        Comments and empty lines are taken together. Half of a line end may leave first: the bytes stay the same.
        """
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

    def _event(self, raw: bytes) -> Event:
        text = raw
        if not self._begun:
            self._begun = True
            text = raw.removeprefix(_BOM)
        return _parse(raw, text)


def _ends(data: bytes | bytearray, start: int) -> Iterator[int]:
    """Give where each empty line ends that follows the end of another line, from left to right."""
    seconds = _after(data, b"\n", b"\r\n", start)
    if b"\r" in data:
        seconds = merge(seconds, _after(data, b"\r", b"\r", start))
    for second in seconds:
        yield second + (2 if data.startswith(b"\r\n", second) else 1)


def _after(data: bytes | bytearray, mark: bytes, others: bytes, at: int) -> Iterator[int]:
    """Give where one of `others` stands right after a `mark`. Lines are long: each is passed over in one step."""
    while 0 < (at := data.find(mark, at) + 1) < len(data):
        if data[at] in others:
            yield at


def _parse(raw: bytes, text: bytes) -> Event:
    kind, event_id, data = b"message", None, list[bytes]()
    for line in filter(None, text.splitlines()):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value if value.isascii() else value.decode("utf-8", "replace").encode())
        elif name == b"event":
            kind = value
        elif name == b"id":
            event_id = value
    # By the standard, an event whose data is empty never happened: the priming event of 2025-11-25, for one.
    return Event(raw, kind or b"message", b"\n".join(data) or None, event_id)
