"""What a browser must answer within a time, once: random values that only its own next request can use."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_OPEN: Final = 1000


class Challenges[T]:
    """Values that wait, each for one owner: a session, or the secret in a browser's cookie."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._open: dict[str, tuple[float, T]] = {}

    def put(self, owner: str, value: T) -> None:
        """Keep a value for an owner, in place of one that the owner had."""
        now = self._clock()
        self._open = {key: one for key, one in self._open.items() if one[0] > now}
        if len(self._open) >= MAX_OPEN:
            del self._open[next(iter(self._open))]
        self._open[_hash(owner)] = (now + self._seconds, value)

    def take(self, owner: str) -> T | None:
        """Return an owner's value and forget it; None where there is none, or its time is over."""
        until, value = self._open.pop(_hash(owner), (0.0, None))
        return value if self._clock() < until else None


def _hash(owner: str) -> str:
    return hashlib.sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()
