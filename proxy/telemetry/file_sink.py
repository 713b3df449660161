"""A sink that appends lines to a file, for a SIEM's agent to read. It is opened for each batch: rename to rotate."""

from __future__ import annotations

import asyncio
import fcntl
import os
from typing import TYPE_CHECKING

from proxy.core.event import Written
from proxy.sinks.role import SinkError
from proxy.telemetry.batches import read_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from proxy.core.event import LogEntry
    from proxy.telemetry.exported_event import ExportedEvent


class FileSink:
    """A Sink on one file, which the workers of a proxy share."""

    batch = 1000
    linger = 0.0

    def __init__(self, path: Path, line: Callable[[ExportedEvent], str], *, with_arguments: bool) -> None:
        self._path = path
        self._line = line
        self._arguments = with_arguments

    async def write(self, entries: Sequence[LogEntry]) -> Written:
        """Return once the lines are on disk."""
        events, poison = read_batch(entries, with_arguments=self._arguments)
        data = "".join(f"{self._line(event)}\n" for _, event in events).encode()
        try:
            await asyncio.to_thread(append, self._path, data)
        except OSError as error:
            raise SinkError(f"{self._path}: {error.strerror}") from error
        return Written(len(entries) - len(poison), poison)

    async def check(self) -> str:
        """Return that the file can be written; nothing is. Raises SinkError."""
        there = self._path if self._path.exists() else self._path.parent
        if not os.access(there, os.W_OK):
            raise SinkError(f"{there} is missing, or this user may not write to it")
        return f"{self._path} can be written"

    async def close(self) -> None:
        """Nothing is open."""


def append(path: Path, data: bytes) -> None:
    """Append whole lines, durably: all of them or none. Readable by its owner only. Raises OSError. Blocks."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        # Other workers append too: without the lock a part that failed could not be taken back.
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            data = b"\n" + data  # a crash left half a line
        try:
            _write_all(handle, data)
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
