"""The shared database: a pool of connections to Postgres that comes back by itself.

A connection that breaks looks the same before and after its transaction was
committed, so broken work is done again, and knows that it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import asyncpg
import structlog

from proxy.errors import StoreUnavailableError
from proxy.store.connections import TIMEOUT, connect_options, take_times_as_seconds, unavailable
from proxy.store.database import Undo
from proxy.store.migrate import check_schema
from proxy.system.database_url import check_database_url, shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from asyncpg import Pool

    from proxy.store.connections import Link
    from proxy.store.database import Steps

log = structlog.get_logger("interlock.store")

CONNECTIONS = 8
TRIES = 3
PAUSE = 0.1
IDLE_SECONDS = 60.0
# What may have gone another way on another connection.
BROKEN = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
)


class PostgresDatabase:
    """A `steps.Database` on Postgres; nothing is connected before it is used, and `timeout` bounds every use."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT, connections: int = CONNECTIONS) -> None:
        """Raise ValueError where `url` is none of Postgres."""
        self._url = check_database_url(url)
        self._timeout = timeout
        self._connections = connections
        self._pool: Pool[Any] | None = None
        self._fits = False
        self._closed = False

    async def read[T](self, steps: Callable[[], Steps[T]]) -> T:
        """Carry out steps that change nothing."""
        return await self._within_time(self._until_whole(lambda _: steps()))

    async def write[T](self, steps: Callable[[bool], Steps[T]]) -> T:
        """Carry out steps and give their result once it is committed."""
        return await self._within_time(self._until_whole(steps))

    async def check(self) -> None:
        """Connect once, and see that the schema fits."""
        await self._within_time(self._try_connection())

    async def close(self) -> None:
        """Let go of every connection."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await asyncio.wait_for(pool.close(), self._timeout)
        except Exception as error:  # noqa: BLE001  whatever it is, nothing may keep a proxy from ending
            log.warning("connections were cut", store=shown(self._url), error=str(error) or repr(error))
            pool.terminate()

    async def _within_time[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Return what comes of `work`, or StoreUnavailableError at the latest when the time is up.

        What is left to tidy up on a connection that hangs goes on without anybody waiting.
        """
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout)
        except asyncio.CancelledError:
            _abandon(task)
            raise
        if not done:
            _abandon(task)
            raise unavailable(self._url, TimeoutError())
        try:
            return task.result()
        except (Exception, asyncio.CancelledError) as error:
            raise unavailable(self._url, error) from error

    async def _until_whole[T](self, steps: Callable[[bool], Steps[T]]) -> T:
        for number in range(1, TRIES):
            try:
                return await self._transact(steps(number > 1))
            except BROKEN as error:
                log.warning("Postgres failed, trying again", store=shown(self._url), error=str(error) or repr(error))
                await asyncio.sleep(PAUSE * number)
        return await self._transact(steps(True))

    async def _transact[T](self, steps: Steps[T]) -> T:
        try:
            async with self._connection() as connection, connection.transaction():
                return await _drive(steps, connection)
        except Undo as undo:
            result: T = undo.result
            return result

    async def _try_connection(self) -> None:
        async with self._connection():
            pass

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Link]:
        if self._closed:
            raise StoreUnavailableError(f"the store at {shown(self._url)} is closed")
        if self._pool is None:
            self._pool = asyncpg.create_pool(
                self._url,
                min_size=0,
                max_size=self._connections,
                max_inactive_connection_lifetime=IDLE_SECONDS,
                init=self._prepare,
                **connect_options(self._timeout),
            )
        await self._pool
        async with self._pool.acquire(timeout=self._timeout) as connection:
            yield connection

    async def _prepare(self, connection: Link) -> None:
        await take_times_as_seconds(connection)
        if not self._fits:
            await check_schema(connection)
            self._fits = True


async def _drive[T](steps: Steps[T], connection: Link) -> T:
    try:
        query = next(steps)
        while True:
            query = steps.send(await connection.fetch(query.sql, *query.values))
    except StopIteration as done:
        result: T = done.value
        return result


def _abandon(task: asyncio.Task[Any]) -> None:
    task.cancel()
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
