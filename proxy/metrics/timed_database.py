"""A database that counts how long each of its statements took, and which failed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from proxy.errors import StoreUnavailableError
from proxy.metrics.counters import STORE, STORE_ERRORS
from proxy.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from proxy.metrics.counters import WorkerCounters
    from proxy.store.database import Row, Work


class TimedDatabase(Database):
    """Passes everything on to another database. A transaction counts as one statement."""

    def __init__(self, database: Database, counters: WorkerCounters) -> None:
        self._database = database
        self._counters = counters
        self.remote = database.remote

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self._timed(self._database.fetch(sql, *values))

    async def execute(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self._timed(self._database.execute(sql, *values))

    async def transaction[T](self, work: Work[T], *, read_only: bool = False) -> T:
        return await self._timed(self._database.transaction(work, read_only=read_only))

    def version(self) -> object | None:
        return self._database.version()

    async def check(self) -> None:
        await self._database.check()

    async def close(self) -> None:
        await self._database.close()

    async def _timed[T](self, work: Awaitable[T]) -> T:
        begun = time.perf_counter()
        try:
            return await work
        except StoreUnavailableError:
            self._counters.add(STORE_ERRORS)
            raise
        finally:
            self._counters.time(STORE, time.perf_counter() - begun)
