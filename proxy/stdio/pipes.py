"""Reads and writes our own stdin and stdout without blocking the event loop.

Not with O_NONBLOCK: that flag belongs to the open file, which the client and other programs share. Of a pipe or a
socket the kernel is asked for each read and write not to wait; for anything else there are threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import select
import socket
import stat
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK = 1 << 16
# What a kernel says that cannot do without waiting on such a file.
_CANNOT = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ESPIPE})


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
    """Reads from a file descriptor. One task at a time may wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._worker: BlockingWorker | None = None
        self._read_now = _reader_of(descriptor)
        self._waiter: asyncio.Future[bytes] | None = None
        self._watched_by: asyncio.AbstractEventLoop | None = None

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end."""
        if self._read_now is not None:
            try:
                return await self._next()
            except ConnectionResetError:
                return b""
            except OSError as error:
                if error.errno not in _CANNOT:
                    raise
                self._read_now = None
        self._worker = self._worker or BlockingWorker("interlock-inlet")
        return await self._worker.do(self._read)

    async def _next(self) -> bytes:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        # The loop watches from one read to the next: who asks and answers in turns pays for one system call.
        if self._watched_by is None:
            loop.add_reader(self._descriptor, self._take)
            self._watched_by = loop
        try:
            data = await self._waiter
        except BaseException:
            self._unwatch()
            raise
        if not data:
            self._unwatch()
        return data

    def _take(self) -> None:
        """Read for the task that waits, now that there is something."""
        waiter = self._waiter
        if waiter is None or waiter.done() or self._read_now is None:
            self._unwatch()  # nobody is there to read, and the loop would call again and again
            return
        try:
            waiter.set_result(self._read_now())
        except BlockingIOError:
            pass  # another program that shares it was quicker
        except OSError as error:
            waiter.set_exception(error)

    def _unwatch(self) -> None:
        if self._watched_by is not None:
            self._watched_by.remove_reader(self._descriptor)
            self._watched_by = None

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
        self._worker: BlockingWorker | None = None
        self._lock = asyncio.Lock()
        self._write_now = _writer_of(descriptor)

    async def write(self, data: bytes) -> None:
        """Return once all of `data` is written. Raises OSError where the reader is gone."""
        left = memoryview(data)
        async with self._lock:
            while self._write_now is not None and left:
                try:
                    left = left[self._write_now(left) :]
                except BlockingIOError:
                    await _until(self._descriptor, "write")
                except OSError as error:
                    if error.errno not in _CANNOT:
                        raise
                    self._write_now = None
            if left:
                self._worker = self._worker or BlockingWorker("interlock-outlet")
                await self._worker.do(lambda: self._write(left))

    def _write(self, left: memoryview) -> None:
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])


def _reader_of(descriptor: int) -> Callable[[], bytes] | None:
    """Return what reads without waiting, and raises BlockingIOError where it would; None where nothing can."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        return lambda: _on_socket(descriptor, lambda peer: peer.recv(CHUNK, socket.MSG_DONTWAIT))
    if not stat.S_ISFIFO(mode) or not hasattr(os, "RWF_NOWAIT"):
        return None
    buffer = bytearray(CHUNK)

    def read() -> bytes:
        return bytes(memoryview(buffer)[: os.preadv(descriptor, [buffer], -1, os.RWF_NOWAIT)])

    return read


def _writer_of(descriptor: int) -> Callable[[memoryview], int] | None:
    """Return what writes without waiting, and raises BlockingIOError where it would; None where nothing can."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        return lambda data: _on_socket(descriptor, lambda peer: peer.send(data, socket.MSG_DONTWAIT))
    if not stat.S_ISFIFO(mode) or not hasattr(os, "RWF_NOWAIT"):
        return None
    return lambda data: os.pwritev(descriptor, [data], -1, os.RWF_NOWAIT)


def _on_socket[T](descriptor: int, work: Callable[[socket.socket], T]) -> T:
    """Do something with a socket's descriptor, which stays its owner's; the family does not count for that."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=descriptor)
    try:
        return work(peer)
    finally:
        peer.detach()


async def _until(descriptor: int, way: str) -> None:
    """Wait until a descriptor can be read or written, as `way` says."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    add, remove = (loop.add_reader, loop.remove_reader) if way == "read" else (loop.add_writer, loop.remove_writer)
    add(descriptor, _settle, ready, ready.set_result, None)
    try:
        await ready
    finally:
        remove(descriptor)


def take_standard_streams() -> tuple[int, int]:
    """Move stdin and stdout to other descriptors, and return those."""
    # A library that prints would put text between JSON-RPC messages: its stdout is stderr, and its stdin is empty.
    taken = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return taken
