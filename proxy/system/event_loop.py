"""Chooses the event loop: uvloop where it is installed and works, otherwise asyncio's own."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

# Crashes the process on `eager_start`, which every connection uses.
BROKEN = ("0.23.0",)
# With io_uring, libuv starts a kernel thread for file operations; a proxy has none, and many sandboxes forbid it.
IO_URING = "UV_USE_IO_URING"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory for asyncio.run; None for asyncio's own loop."""
    try:
        import uvloop  # noqa: PLC0415  it may not be installed
    except ImportError:
        return None
    known: str = uvloop.__version__  # type: ignore[attr-defined]  # reading the package's metadata is slow
    return None if known in BROKEN else partial(_without_io_uring, uvloop.new_event_loop)


def _without_io_uring[T](make: Callable[[], T]) -> T:
    # Set only while the loop is made: programs that this process starts must not inherit it. An operator's value wins.
    if IO_URING in os.environ:
        return make()
    os.environ[IO_URING] = "0"
    try:
        return make()
    finally:
        del os.environ[IO_URING]


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main, loop_factory=loop_factory())
