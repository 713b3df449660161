"""Reads and writes our own stdin and stdout without blocking the event loop.

In threads, and not with O_NONBLOCK: that flag belongs to the open file, which the client and other programs share.
"""

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
    """Does blocking work in a thread, in order; work that never ends does not keep the process from exiting."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = queue.SimpleQueue()
        # A daemon thread, not an executor's: asyncio waits for those at exit, and a read of stdin may never return.
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def do[T](self, work: Callable[[], T]) -> T:
        """Return the result of `work`, once all earlier work is done."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put((work, done))
        return await done

    def _work(self) -> None:
        while True:
            work, done = self._queue.get()
            try:
                settle, outcome = done.set_result, work()
            except Exception as error:  # noqa: BLE001  the caller of `do` gets it
                settle, outcome = done.set_exception, error
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                done.get_loop().call_soon_threadsafe(_settle, done, settle, outcome)


def _settle(done: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    if not done.done():
        settle(outcome)


class DescriptorReader:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._worker = BlockingWorker("interlock-inlet")

    async def read(self) -> bytes:
        return await self._worker.do(self._read)

    def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, CHUNK)
            except BlockingIOError:  # another program that shares it has set O_NONBLOCK
                select.select([self._descriptor], [], [])
            except ConnectionResetError:
                return b""


class DescriptorWriter:
    """Writes to a file descriptor; the bytes of one call are not interleaved with another's."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._worker = BlockingWorker("interlock-outlet")

    async def write(self, data: bytes) -> None:
        """Return once all of `data` is written. Raises OSError where the reader is gone."""
        await self._worker.do(lambda: self._write(data))

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])


def take_standard_streams() -> tuple[int, int]:
    """Move stdin and stdout to other descriptors, and return those."""
    # A library that prints would put text between JSON-RPC messages: its stdout is stderr, and its stdin is empty.
    taken = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return taken
