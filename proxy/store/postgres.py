"""The shared database: connections to Postgres, and a pool of them that recovers by itself.

A connection that breaks looks the same before and after its transaction was
committed, so broken work is tried again, and knows that it is (`Transaction.retried`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any, cast

import asyncpg
import structlog

from proxy.errors import StoreForbiddenError, StoreRefusedError, StoreUnavailableError
from proxy.store.database import Database, Rollback, Row, Work
from proxy.store.migrate import Migration, Schema, apply_missing, check_schema, read_schema
from proxy.system.database_url import check_database_url, shown, split_system_roots, unprotected_host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence

    from asyncpg import Connection, Pool
    from asyncpg.pool import PoolConnectionProxy

    type Link = Connection[Any] | PoolConnectionProxy[Any]

log = structlog.get_logger("interlock.store")

TIMEOUT = 5.0
CONNECTIONS = 8
TRIES = 3
PAUSE = 0.1
IDLE_SECONDS = 10.0  # a proxy that has nothing to do leaves the server's connections to others
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


# What a pooler in between says to statements that were prepared on another of its connections.
POOLED = (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError)
MARK = "interlock.direct"  # a setting that no pooler knows: where the server has it, none is in between
# URLs that lead to a pooler which gives each transaction another connection, such as PgBouncer.
_POOLERS: set[str] = set()


def is_pooled(url: str) -> bool:
    """Return whether a pooler was met at `url`: then every statement needs a transaction around it."""
    return url in _POOLERS


async def _open(url: str, **options: Any) -> Any:
    """Connect; again without what a transaction pooler does not take, where one answers."""
    plain, by_system = split_system_roots(url)
    if by_system:
        options["ssl"] = ssl.create_default_context()
    if url not in _POOLERS:
        try:
            connection = await asyncpg.connect(plain, **options)
        except asyncpg.ProtocolViolationError as error:
            if "startup parameter" not in str(error):
                raise
            # PgBouncer refuses parameters that it cannot set again for each transaction.
        else:
            try:
                ours = await _has_our_settings(connection)
            except BaseException:  # the time is up, or the server is gone: nobody else knows of this connection
                connection.terminate()
                raise
            if ours:
                return connection
            await connection.close(timeout=TIMEOUT)
        _POOLERS.add(url)
    options["server_settings"] = {"application_name": "interlock"}
    return await asyncpg.connect(plain, **(options | {"statement_cache_size": 0}))


async def _has_our_settings(connection: Link) -> bool:
    """Return whether what was set at the start is in force: a pooler may take it and pass nothing on.

    It must be known before the first statement: two processes give their prepared statements the same names, and
    behind a pooler one would run the other's.
    """
    try:
        async with connection.transaction():
            return bool(await connection.fetchval("SELECT current_setting($1, true) = 'on'", MARK))
    except POOLED:
        return False


@contextlib.asynccontextmanager
async def _kept_together(url: str, connection: Link) -> AsyncIterator[None]:
    """Keep the statements of the block on one connection of a pooler, where one is in between."""
    if not is_pooled(url):
        yield
        return
    async with connection.transaction():
        yield


def _connect_options(timeout: float) -> dict[str, Any]:
    milliseconds = str(int(timeout * 1000))
    return {
        "timeout": timeout,
        "command_timeout": timeout,
        "server_settings": {
            "application_name": "interlock",
            MARK: "on",
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
        connection: Link = await _open(check_database_url(url), **_connect_options(timeout))
        async with _kept_together(url, connection):
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
        async with _kept_together(url, connection):
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
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        kind = StoreForbiddenError
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
    async with _connected(url) as connection, _kept_together(url, connection):
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

    remote = True

    def __init__(self, url: str, *, timeout: float = TIMEOUT, connections: int = CONNECTIONS) -> None:
        """Raise ValueError where `url` is none of Postgres."""
        self._url = check_database_url(url)
        self._timeout = timeout
        self._connections = connections
        self._pool: Pool[Any] | None = None
        self._fits = False
        self._closed = False

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self._within_time(self._until_unbroken(lambda _: self._run_alone(sql, values)))

    async def execute(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self._within_time(self._until_unbroken(lambda _: self._run_alone(sql, values)))

    async def transaction[T](self, work: Work[T], *, read_only: bool = False) -> T:  # noqa: ARG002  readers block nobody here
        return await self._within_time(self._until_unbroken(lambda retried: self._transact(work, retried=retried)))

    @property
    def unprotected_host(self) -> str | None:
        """The remote host that events go to over a connection that may be in plain text."""
        return unprotected_host(self._url)

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

    async def _until_unbroken[T](self, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """Return what an attempt returns; it is told whether an earlier one may have been committed."""
        for number in range(1, TRIES):
            try:
                return await attempt(number > 1)
            except POOLED:
                # A pooler that takes our parameters shows itself here. No statement of ours was run.
                _POOLERS.add(self._url)
                if self._pool is not None:
                    await self._pool.expire_connections()
            except BROKEN as error:
                log.warning("Postgres failed, trying again", store=shown(self._url), error=str(error) or repr(error))
                await asyncio.sleep(PAUSE * number)
        return await attempt(True)

    async def _run_alone(self, sql: str, values: Sequence[Any]) -> Sequence[Row]:
        """Run one statement. By itself it is a transaction, in one round trip where three would do the same."""
        async with self._connection() as connection, _kept_together(self._url, connection):
            return await connection.fetch(sql, *values)

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
                connect=cast("Any", _open),
                init=self._prepare,
                # Nothing to reset: no statement changes the session. asyncpg rolls back what was left open.
                reset=_leave_as_it_is,
                **_connect_options(self._timeout),
            )
        await self._pool
        async with self._pool.acquire(timeout=self._timeout) as connection:
            yield connection

    async def _prepare(self, connection: Link) -> None:
        async with _kept_together(self._url, connection):
            await _take_times_as_seconds(connection)
            if not self._fits:  # once: every new connection of the pool comes here
                await check_schema(connection)
                self._fits = True


async def _leave_as_it_is(connection: Link) -> None:
    """Do nothing."""


def _forget(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # looked at, or asyncio logs that nobody did
