"""Server-sent events: split a byte stream into events, and write one anew.

Pure. An event nobody changes is passed on byte for byte, as soon as it is whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from proxy.errors import WireError

# Atomic groups: "\r\n" is one line end and must not be read as two.
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
# Comments and empty lines where an event could start.
_NOTHING = re.compile(rb"(?:(?::[^\r\n]*+)?+(?>\r\n|\n|\r))++")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One block of a stream: the bytes it came as, and what they say."""

    raw: bytes
    event: str = "message"
    data: str | None = None
    id: str | None = None

    def with_data(self, payloads: list[bytes]) -> bytes:
        """Give this event's bytes with other data; further payloads become events of their own.

        None of `payloads` may hold a line break. No payloads: a comment, so that
        the reader's keep-alive clock still runs.
        """
        if not payloads:
            return b": removed\n\n"
        # A byte order mark would make its line's field another one than readers see.
        lines = _LINE_END.split(self.raw.removeprefix(_BOM))
        kept = [line for line in lines if line and _field(line)[0] != "data"]
        first = b"\n".join([*kept, b"data: " + payloads[0]]) + b"\n\n"
        return first + b"".join(b"event: message\ndata: " + more + b"\n\n" for more in payloads[1:])


class Splitter:
    """Cuts chunks into events. Comment lines leave at once, wherever the chunk ends."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._begun = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Give the events completed by `chunk`.

        Raises WireError `event_too_large` where one grows past the limit.
        """
        seen = max(0, len(self._buffer) - 3)
        self._buffer += chunk
        events: list[Event] = []
        start = 0
        while (end := self._end(start, seen)) is not None:
            events.append(self._event(bytes(self._buffer[start:end])))
            start = seen = end
        # Once for all events: cutting each off by itself would move the rest every time.
        del self._buffer[:start]
        self._check(len(self._buffer))
        return events

    @property
    def waiting(self) -> int:
        """How many bytes have come of an event that is not whole yet."""
        return len(self._buffer)

    def _end(self, start: int, seen: int) -> int | None:
        """Give where what begins at `start` ends, if that is after `seen`.

        Comments and empty lines are taken together. Half of a line end may leave first:
        the bytes stay the same.
        """
        comment = bytes(self._buffer[start : start + 1]) in (b":", b"\r", b"\n")
        found = (_LINE_END if comment else _EVENT_END).search(self._buffer, seen)
        if found is None:
            return None
        if comment:
            found = _NOTHING.match(self._buffer, start) or found
        else:
            self._check(found.end() - start)
        return found.end()

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise WireError("event_too_large", f"a server-sent event of more than {self._limit} bytes")

    def _event(self, raw: bytes) -> Event:
        text = raw
        if not self._begun:
            self._begun = True
            text = raw.removeprefix(_BOM)
        return _parse(raw, text)


def _parse(raw: bytes, text: bytes) -> Event:
    kind, event_id, data = "message", None, list[str]()
    for line in filter(None, _LINE_END.split(text)):
        name, value = _field(line)
        if name == "data":
            data.append(value)
        elif name == "event":
            kind = value
        elif name == "id":
            event_id = value
    # By the standard, an event whose data is empty never happened: the priming event of 2025-11-25, for one.
    return Event(raw, kind or "message", "\n".join(data) or None, event_id)


def _field(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode("utf-8", "replace").partition(":")
    return name, value.removeprefix(" ")
