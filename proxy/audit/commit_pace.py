"""Tells whether commits are quick enough for the event loop's own thread."""

from __future__ import annotations

import time

SLOW_IN_A_ROW = 3  # so many of them: one alone may be SQLite's checkpoint
REST_SECONDS = 1.0


class CommitPace:
    """Notes how long commits take; after several in a row that took longer than `slow` seconds it rests."""

    def __init__(self, slow: float) -> None:
        self._limit = slow
        self._slow = 0
        self._until = 0.0

    def rests(self, now: float) -> bool:
        """Return whether another thread should commit, at `now` by the monotonic clock."""
        return now < self._until

    def note(self, began: float) -> None:
        """Note that a commit that began at `began` has ended."""
        now = time.monotonic()
        self._slow = self._slow + 1 if now - began > self._limit else 0
        if self._slow >= SLOW_IN_A_ROW:
            self._slow, self._until = 0, now + REST_SECONDS
