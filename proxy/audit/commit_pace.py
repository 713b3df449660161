"""Tells whether commits are quick enough for the event loop's own thread."""

from __future__ import annotations

import time

SLOW_SECONDS = 0.02  # a commit that takes longer should not hold the event loop up
SLOW_IN_A_ROW = 3  # so many of them: one alone may be SQLite's checkpoint
REST_SECONDS = 1.0


class CommitPace:
    """Notes how long commits take; after several slow ones in a row it rests."""

    def __init__(self) -> None:
        self._slow = 0
        self._until = 0.0

    def rests(self, now: float) -> bool:
        """Return whether another thread should commit, at `now` by the monotonic clock."""
        return now < self._until

    def note(self, began: float) -> None:
        """Note that a commit that began at `began` has ended."""
        now = time.monotonic()
        self._slow = self._slow + 1 if now - began > SLOW_SECONDS else 0
        if self._slow >= SLOW_IN_A_ROW:
            self._slow, self._until = 0, now + REST_SECONDS
