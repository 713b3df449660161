"""What works beside a log that is written: a thread with an event loop of its own, and pauses after what fails.

The thread ends in two steps: once to let go of the log, so that it can be closed, and once for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = structlog.get_logger("interlock.audit")

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
LAST_SECONDS = 3.0


class Retries:
    """How long to wait after each failure in a row; `problem` is the last one, until it works again."""

    def __init__(self, first: float | None = None, longest: float | None = None) -> None:
        self.problem: str | None = None
        self._first = first
        self._longest = longest
        self._next: float | None = None

    def failed(self, problem: str) -> bool:
        """Note a failure; return whether it is another one than before."""
        before, self.problem = self.problem, problem
        return problem != before

    def worked(self) -> bool:
        """Note that it works; return whether it had failed before."""
        before, self.problem, self._next = self.problem, None, None
        return before is not None

    def pause(self) -> float:
        """Return how long to wait now: longer each time, with jitter, so that replicas do not come all at once."""
        now = self._next or self._first or FIRST_PAUSE
        self._next = min(2 * now, self._longest or LONGEST_PAUSE)
        return now * random.uniform(0.5, 1.0)  # noqa: S311  no secret


class LogThread:
    """Works as long as a process writes to its log: `stop` it, close the log, then let it `finish`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._finish = asyncio.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let go of the log, so that it can be closed."""
        self._set(self._stop)
        self._stopped.wait(2 * LAST_SECONDS)

    def finish(self) -> None:
        """Do what is left, as far as LAST_SECONDS allow; the next start does the rest."""
        self._set(self._finish)
        self._thread.join(2 * LAST_SECONDS)

    async def run(self) -> None:
        """Work until `_stop`, say so by `_stopped`, and end after `_finish`."""
        raise NotImplementedError

    def _set(self, event: asyncio.Event) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(event.set)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self.run())
        except Exception as error:
            log.exception("a thread ended; events stay in the local log", thread=self._thread.name, error=str(error))
        finally:
            self._stopped.set()
            self._loop.close()


async def rest(stop: asyncio.Event, seconds: float) -> None:
    """Wait some seconds, or until `stop` is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def work_until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run `work`, which ends by itself once `stop` is set; cancel it where that takes longer than LAST_SECONDS."""
    working = asyncio.create_task(work)
    await stop.wait()
    await asyncio.wait({working}, timeout=LAST_SECONDS)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
