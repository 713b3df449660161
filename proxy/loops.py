"""Which event loop runs the proxy: uvloop's where it is installed and works, asyncio's own otherwise."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

# Ends the process as soon as a task is started at once (`eager_start`), which every connection does.
BROKEN = ("0.23.0",)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Give what makes the event loop; None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415  it may be missing
    except ImportError:
        return None
    known: str = uvloop.__version__  # type: ignore[attr-defined]  # the package's metadata takes far longer to read
    return None if known in BROKEN else uvloop.new_event_loop


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end, as asyncio.run does."""
    asyncio.run(main, loop_factory=loop_factory())
