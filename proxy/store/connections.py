"""Connections to Postgres: bounded in time, and with times as seconds since the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg

from proxy.errors import StoreRefusedError, StoreUnavailableError
from proxy.system.database_url import check_database_url, shown

if TYPE_CHECKING:
    from asyncpg import Connection
    from asyncpg.pool import PoolConnectionProxy

    type Link = Connection[Any] | PoolConnectionProxy[Any]

TIMEOUT = 5.0
# What is wrong with the data, not with the database.
REFUSED = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)
_Y2K = 946_684_800
_MICROSECONDS = 1_000_000


def connect_options(timeout: float) -> dict[str, Any]:
    """Return what every connection is opened with.

    The server ends what takes too long too, so that a proxy that vanished
    holds no lock that others wait for.
    """
    milliseconds = str(int(timeout * 1000))
    return {
        "timeout": timeout,
        "command_timeout": timeout,
        "server_settings": {
            "application_name": "interlock",
            "jit": "off",  # costs more than it gives, where there are many partitions
            "statement_timeout": milliseconds,
            "idle_in_transaction_session_timeout": milliseconds,
        },
    }


async def connect(url: str, timeout: float = TIMEOUT) -> Link:  # noqa: ASYNC109  the driver's own bound
    """Open one connection. Raises StoreUnavailableError where there is none to be had in time."""
    try:
        connection: Link = await asyncpg.connect(check_database_url(url), **connect_options(timeout))
        await take_times_as_seconds(connection)
    except Exception as error:
        raise unavailable(url, error) from error
    return connection


async def take_times_as_seconds(connection: Link) -> None:
    """Let `timestamptz` come and go as seconds since the epoch, kept to the microsecond."""
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        encoder=lambda seconds: (round((seconds - _Y2K) * _MICROSECONDS),),
        decoder=lambda value: value[0] / _MICROSECONDS + _Y2K,
        format="tuple",
    )


def unavailable(url: str, error: BaseException) -> StoreUnavailableError:
    """Return the error for a Postgres that did not do what was asked, without its password."""
    if isinstance(error, StoreUnavailableError):
        return error
    kind = StoreRefusedError if isinstance(error, REFUSED) else StoreUnavailableError
    what = str(error).partition("\n")[0] or ("no answer in time" if isinstance(error, TimeoutError) else repr(error))
    return kind(f"Postgres at {shown(url)} cannot be used: {what}")
