"""Reads a pipe in the file system while the event loop runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHUNK = 1 << 16


@contextlib.contextmanager
def reading(path: Path, take: Callable[[bytes], None]) -> Iterator[None]:
    """Give `take` what is written to a pipe, until its last writer has closed it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    loop = asyncio.get_running_loop()

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(descriptor, CHUNK)
            if not data:
                loop.remove_reader(descriptor)
            take(data)

    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
