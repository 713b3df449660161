"""Signals for a loop that polls: queued, with a socket that wakes the poll."""

from __future__ import annotations

import contextlib
import signal
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class SignalQueue:
    """The signals that came and were not handled yet. Create and use it in the main thread."""

    def __init__(self) -> None:
        self._pending: list[int] = []
        self._wakeup, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._wakeup.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that is readable when a signal came."""
        return self._wakeup.fileno()

    @contextlib.contextmanager
    def catching(self, numbers: Iterable[int]) -> Iterator[None]:
        """Queue these signals while the block runs."""
        before = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, lambda number, _: self._pending.append(number)) for number in numbers}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)

    def drain(self) -> None:
        """Take the bytes that woke the poll."""
        with contextlib.suppress(BlockingIOError):
            self._wakeup.recv(4096)

    def take(self) -> Iterator[int]:
        """Yield the signals in their order, those included that come meanwhile."""
        while self._pending:
            yield self._pending.pop(0)

    def close(self) -> None:
        self._wakeup.close()
        self._waker.close()
