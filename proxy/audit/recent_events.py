"""What a log has just written, kept in memory for whoever moves it on, so that it need not be read back.

Bounded: where nobody comes for it in time, the oldest go, and are read from the file. Nothing depends on it.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.audit.event import Entry

MOST = 2000
MOST_CHARACTERS = 4 << 20


class Fresh:
    """The last events of a log, without a gap. Its writer adds, its shipper reads and drops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[Entry] = deque()
        self._first = 1
        """The number of the first that is kept."""
        self._characters = 0

    def add(self, entries: Sequence[Entry], first: int) -> None:
        """Keep `entries`, which are on disk and numbered from `first` on."""
        with self._lock:
            if first != self._first + len(self._kept):
                self._kept.clear()
                self._first, self._characters = first, 0
            self._kept.extend(entries)
            self._characters += sum([len(entry.body) for entry in entries])
            while len(self._kept) > MOST or self._characters > MOST_CHARACTERS:
                self._drop_one()

    def after(self, seq: int, limit: int) -> Sequence[Entry] | None:
        """Return what comes after number `seq`, no more than `limit`; None where that is not kept, or not all of it."""
        with self._lock:
            start = seq + 1 - self._first
            return [*islice(self._kept, start, start + limit)] if 0 <= start < len(self._kept) else None

    def drop(self, last: int) -> None:
        """Let go of all up to number `last`."""
        with self._lock:
            while self._kept and self._first <= last:
                self._drop_one()

    def _drop_one(self) -> None:
        self._characters -= len(self._kept.popleft().body)
        self._first += 1
