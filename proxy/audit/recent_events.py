"""What a log has just written, in memory for its shipper, which then need not read it back.

Bounded: where the shipper does not keep up, the oldest are dropped, and read from the file. Nothing depends on it.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.audit.event import LogEntry

MOST = 2000
MOST_CHARACTERS = 4 << 20


class RecentEvents:
    """The last events of a log, without a gap. Its writer adds, its shipper reads and drops, each in its thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[LogEntry] = deque()
        self._first = 1  # the number of the first event in it
        self._characters = 0

    def add(self, entries: Sequence[LogEntry], first: int) -> None:
        """Add `entries`, which are on disk and numbered from `first` on."""
        with self._lock:
            # Behind a gap the numbers would be wrong: begin anew, and let the shipper read the file up to here.
            if first != self._first + len(self._events):
                self._events.clear()
                self._first, self._characters = first, 0
            self._events.extend(entries)
            self._characters += sum([len(entry.body) for entry in entries])
            while len(self._events) > MOST or self._characters > MOST_CHARACTERS:
                self._drop_one()

    def after(self, seq: int, limit: int) -> Sequence[LogEntry] | None:
        """Return up to `limit` events after number `seq`; None where the next of them is not in memory."""
        with self._lock:
            start = seq + 1 - self._first
            return [*islice(self._events, start, start + limit)] if 0 <= start < len(self._events) else None

    def drop(self, last: int) -> None:
        with self._lock:
            while self._events and self._first <= last:
                self._drop_one()

    def _drop_one(self) -> None:
        self._characters -= len(self._events.popleft().body)
        self._first += 1
