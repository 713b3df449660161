"""Checks stretches of chains in several processes at once, and gives their results in order."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
from collections import deque
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from proxy.audit.range_check import Stretch, StretchResult, check_stretch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path

SIZE = 20_000  # events in a stretch
MANY = 100_000  # from so many events on, processes are worth their start


class StretchPool:
    """Processes that read one store: the Postgres at a URL, or the SQLite file at a path."""

    def __init__(self, source: str | Path, executor: Executor, ahead: int, size: int = SIZE) -> None:
        self._source = source
        self._executor = executor
        self._ahead = ahead
        self._size = size

    def cut(self, writer: str, first: int, last: int, tip: str, links: Mapping[int, str]) -> list[Stretch]:
        """Cut the events `first` to `last` of a writer into stretches; `tip` is the link before the first."""
        found: list[Stretch] = []
        for begin in range(first, last + 1, self._size):
            end = min(last, begin + self._size - 1)
            within = {seq: link for seq, link in links.items() if begin <= seq <= end}
            found.append(Stretch(writer, begin, end, tip if begin == first else None, within))
        return found

    async def check(self, stretches: Sequence[Stretch]) -> AsyncIterator[tuple[Stretch, StretchResult]]:
        """Yield the result of each stretch, in their order. Raises StoreUnavailableError where one cannot be read."""
        loop, waiting = asyncio.get_running_loop(), deque[tuple[Stretch, asyncio.Future[StretchResult]]]()
        rest = iter(stretches)
        try:
            while True:
                while len(waiting) < self._ahead and (stretch := next(rest, None)) is not None:
                    work = partial(check_stretch, self._source, stretch)
                    waiting.append((stretch, loop.run_in_executor(self._executor, work)))
                if not waiting:
                    return
                stretch, result = waiting.popleft()
                yield stretch, await result
        finally:
            for _, result in waiting:
                result.cancel()


@contextlib.contextmanager
def open_pool(
    source: str | Path, events: int, *, size: int = SIZE, processes: int | None = None
) -> Iterator[StretchPool]:
    """Open a pool for about so many events: few are read in one thread, many by a process a core."""
    count = (os.cpu_count() or 1) if processes is None else processes
    executor: Executor
    if events < MANY and processes is None:
        executor = ThreadPoolExecutor(1)
    else:
        # Spawned: a fork of a process with threads may hold a lock that nobody will release.
        executor = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield StretchPool(source, executor, 2 * count, size)
    finally:
        executor.shutdown(cancel_futures=True)
