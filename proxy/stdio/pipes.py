"""Our own stdin and stdout, without blocking anybody and without changing their flags, which others share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 1 << 16


class BlockingWorker:
    """Does blocking work in a thread, piece after piece; work that never ends holds up nobody's exit."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def do[T](self, work: Callable[[], T]) -> T:
        """Return what `work` gives, once all that was asked for before is done."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put((work, done))
        return await done

    def _work(self) -> None:
        while True:
            work, done = self._queue.get()
            try:
                settle, outcome = done.set_result, work()
            except Exception as error:  # noqa: BLE001  whoever asked for the work gets it
                settle, outcome = done.set_exception, error
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                done.get_loop().call_soon_threadsafe(_settle, done, settle, outcome)


def _settle(done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not done.done():
        settle(outcome)


class DescriptorReader:
    """Reads a file descriptor, no faster than it is asked to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._hand = BlockingWorker("interlock-inlet")

    async def read(self) -> bytes:
        """Return what has come; nothing at the end."""
        return await self._hand.do(self._read)

    def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, CHUNK)
            except BlockingIOError:  # somebody who shares it made it so
                select.select([self._descriptor], [], [])
            except ConnectionResetError:
                return b""


class DescriptorWriter:
    """Writes to a file descriptor; what one call writes stands together."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._hand = BlockingWorker("interlock-outlet")

    async def write(self, data: bytes) -> None:
        """Return once `data` is taken. Raises OSError where nobody reads any more."""
        await self._hand.do(lambda: self._write(data))

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])


def take_standard_streams() -> tuple[int, int]:
    """Take stdin and stdout for ourselves; return what stands for them from now on.

    What else in this process reads stdin finds its end, and what writes to stdout goes to stderr.
    """
    taken = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return taken
