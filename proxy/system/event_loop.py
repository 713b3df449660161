"""Which event loop runs the proxy: uvloop's where it is installed and works, asyncio's own otherwise."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

# Ends the process as soon as a task is started at once (`eager_start`), which every connection does.
BROKEN = ("0.23.0",)
# libuv asks the kernel for a thread that looks for file operations; a proxy has none, and many sandboxes forbid it.
IO_URING = "UV_USE_IO_URING"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the event loop; None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415  it may be missing
    except ImportError:
        return None
    known: str = uvloop.__version__  # type: ignore[attr-defined]  # the package's metadata takes far longer to read
    return None if known in BROKEN else partial(_without_io_uring, uvloop.new_event_loop)


def _without_io_uring[T](make: Callable[[], T]) -> T:
    """Make a loop without io_uring, unless the environment speaks of it. What is started from here is not told."""
    if IO_URING in os.environ:
        return make()
    os.environ[IO_URING] = "0"
    try:
        return make()
    finally:
        del os.environ[IO_URING]


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end, as asyncio.run does."""
    asyncio.run(main, loop_factory=loop_factory())
