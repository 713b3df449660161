"""The shared database: connections to Postgres, and a pool of them that recovers by itself.

A connection that breaks looks the same before and after its transaction was
committed, so broken work is tried again, and knows that it is (`Transaction.retried`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import asyncpg
import structlog

from proxy.errors import StoreRefusedError, StoreUnavailableError
from proxy.store.database import Database, Rollback, Row, Work
from proxy.store.migrate import Migration, Schema, apply_missing, check_schema, read_schema
from proxy.system.database_url import check_database_url, shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from asyncpg import Connection, Pool
    from asyncpg.pool import PoolConnectionProxy

    type Link = Connection[Any] | PoolConnectionProxy[Any]

log = structlog.get_logger("interlock.store")

TIMEOUT = 5.0
CONNECTIONS = 8
TRIES = 3
PAUSE = 0.1
IDLE_SECONDS = 60.0
LISTEN_PAUSE = 1.0  # before a connection that ended is opened again
_Y2K = 946_684_800  # Postgres counts from the year 2000
_MICROSECONDS = 1_000_000
# What is wrong with the data, not with the database.
REFUSED = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)
# What may succeed on another connection.
BROKEN = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
)


def _connect_options(timeout: float) -> dict[str, Any]:
    milliseconds = str(int(timeout * 1000))
    return {
        "timeout": timeout,
        "command_timeout": timeout,
        "server_settings": {
            "application_name": "interlock",
            "jit": "off",  # costs more than it gives, where there are many partitions
            # The server stops what takes too long as well: else the locks of a proxy that vanished would stop every
            # other replica.
            "statement_timeout": milliseconds,
            "idle_in_transaction_session_timeout": milliseconds,
        },
    }


async def connect(url: str, timeout: float = TIMEOUT) -> Link:  # noqa: ASYNC109  the driver's own bound
    """Open one connection. Raises StoreUnavailableError where none is to be had in time."""
    try:
        connection: Link = await asyncpg.connect(check_database_url(url), **_connect_options(timeout))
        await _take_times_as_seconds(connection)
    except Exception as error:
        raise unavailable(url, error) from error
    return connection


async def copy_rows(
    url: str,
    sql: str,
    values: Sequence[Any],
    take: Callable[[bytes], Coroutine[Any, Any, None]],
    timeout: float,  # noqa: ASYNC109
) -> None:
    """Give `take` what a query returns, in COPY's text format, on a connection of its own."""
    connection = await connect(url, timeout)
    try:
        await connection.copy_from_query(sql, *values, output=take, timeout=timeout)
    except Exception as error:
        raise unavailable(url, error) from error
    finally:
        await connection.close(timeout=TIMEOUT)


async def _take_times_as_seconds(connection: Link) -> None:
    """Encode and decode `timestamptz` as seconds since the epoch, to the microsecond: SQLite stores them so too."""
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        encoder=lambda seconds: (round((seconds - _Y2K) * _MICROSECONDS),),
        decoder=lambda value: value[0] / _MICROSECONDS + _Y2K,
        format="tuple",
    )


def unavailable(url: str, error: BaseException) -> StoreUnavailableError:
    """Return the error to raise for a Postgres that failed; it does not show the password in `url`."""
    if isinstance(error, StoreUnavailableError):
        return error
    kind = StoreRefusedError if isinstance(error, REFUSED) else StoreUnavailableError
    what = str(error).partition("\n")[0] or ("no answer in time" if isinstance(error, TimeoutError) else repr(error))
    return kind(f"Postgres at {shown(url)} cannot be used: {what}")


@contextlib.asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Link]:
    connection = await connect(url)
    try:
        yield connection
    except Exception as error:
        raise unavailable(url, error) from error
    finally:
        await connection.close(timeout=TIMEOUT)


async def schema_of(url: str) -> Schema:
    async with _connected(url) as connection:
        return await read_schema(connection)


async def migrate(url: str) -> Sequence[Migration]:
    """Apply the migrations that the database lacks, all or none; return them. Safe from many processes at once.

    Raises SchemaError where the text of an applied migration has changed since.
    """
    async with _connected(url) as connection:
        try:
            async with connection.transaction():
                return await apply_missing(connection)
        except asyncpg.LockNotAvailableError as error:
            raise StoreUnavailableError(
                f"a lock that the migration needs is held at {shown(url)}, by another migration or a long transaction; "
                "try again when that has ended"
            ) from error


class _PostgresTransaction:
    def __init__(self, connection: Link, *, retried: bool) -> None:
        self._connection = connection
        self.retried = retried

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self._connection.fetch(sql, *values)


class PostgresDatabase(Database):
    """A `database.Database` on Postgres. Nothing is connected before it is used; `timeout` bounds every use."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT, connections: int = CONNECTIONS) -> None:
        """Raise ValueError where `url` is none of Postgres."""
        self._url = check_database_url(url)
        self._timeout = timeout
        self._connections = connections
        self._pool: Pool[Any] | None = None
        self._fits = False
        self._closed = False

    async def transaction[T](self, work: Work[T], *, read_only: bool = False) -> T:  # noqa: ARG002  readers block nobody here
        return await self._within_time(self._until_unbroken(work))

    async def listen(self, channel: str, on_change: Callable[[], None]) -> None:
        """Call `on_change` for each notification on a channel, and whenever one may have been missed.

        Runs until cancelled, on a connection of its own. Who needs to be sure asks from time to time as well: some
        poolers pass no notifications on.
        """
        while not self._closed:
            try:
                connection = await connect(self._url, self._timeout)
                ended = asyncio.Event()
                connection.add_termination_listener(lambda _, ended=ended: ended.set())
                await connection.add_listener(channel, lambda *_: on_change())
                try:
                    on_change()
                    await ended.wait()
                finally:
                    await connection.close(timeout=1.0)
            except (*BROKEN, StoreUnavailableError, asyncpg.PostgresError, TimeoutError) as error:
                log.debug("Postgres tells nothing", channel=channel, error=str(error))
            await asyncio.sleep(LISTEN_PAUSE)

    async def check(self) -> None:
        await self._within_time(self._try_connection())

    async def close(self) -> None:
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await asyncio.wait_for(pool.close(), self._timeout)
        except Exception as error:  # noqa: BLE001  whatever it is, nothing may keep a proxy from ending
            log.warning("connections to Postgres were cut", store=shown(self._url), error=str(error) or repr(error))
            pool.terminate()

    async def _within_time[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns; raise StoreUnavailableError when the time is up at the latest."""
        # Not asyncio.timeout: that waits until the cancelled work has ended, and what it has to tidy up on a connection
        # that hangs takes as long as the connection hangs.
        task = asyncio.ensure_future(work)
        done: set[asyncio.Future[T]] = set()
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout)
        finally:
            if not done:  # too late, or cancelled
                task.cancel()
                task.add_done_callback(_forget)
        if not done:
            raise unavailable(self._url, TimeoutError())
        try:
            return task.result()
        except (Exception, asyncio.CancelledError) as error:
            raise unavailable(self._url, error) from error

    async def _until_unbroken[T](self, work: Work[T]) -> T:
        for number in range(1, TRIES):
            try:
                return await self._transact(work, retried=number > 1)
            except BROKEN as error:
                log.warning("Postgres failed, trying again", store=shown(self._url), error=str(error) or repr(error))
                await asyncio.sleep(PAUSE * number)
        return await self._transact(work, retried=True)

    async def _transact[T](self, work: Work[T], *, retried: bool) -> T:
        try:
            async with self._connection() as connection, connection.transaction():
                return await work(_PostgresTransaction(connection, retried=retried))
        except Rollback as ending:
            result: T = ending.result
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
                **_connect_options(self._timeout),
            )
        await self._pool
        async with self._pool.acquire(timeout=self._timeout) as connection:
            yield connection

    async def _prepare(self, connection: Link) -> None:
        await _take_times_as_seconds(connection)
        if not self._fits:  # once: every new connection of the pool comes here
            await check_schema(connection)
            self._fits = True


def _forget(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # looked at, or asyncio logs that nobody did
