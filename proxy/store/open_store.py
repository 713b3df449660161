"""Opens the stores: on Postgres where a URL is given, else on a file in the state folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from proxy.errors import SchemaError, StoreUnavailableError
from proxy.store.proposal_store import Proposals
from proxy.store.sqlite import STORE_FILE, TIMEOUT, SqliteDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from proxy.store.database import Database
    from proxy.store.postgres_listen import PostgresListener

log = structlog.get_logger("interlock.store")


def open_store(database_url: str | None, state_dir: Path) -> Proposals:
    """Return the store of proposals. Nothing is connected or opened before it is used."""
    return Proposals(open_database(database_url, state_dir))


def open_database(
    database_url: str | None,
    state_dir: Path,
    *,
    timeout: float = TIMEOUT,
    in_thread: bool = True,
    connections: int | None = None,
) -> Database:
    """Return the database for a store; several stores may share one. `in_thread` is of a file alone.

    `connections`: how many it may open to a Postgres at most.
    """
    if not database_url:
        return SqliteDatabase(state_dir / STORE_FILE, timeout=timeout, in_thread=in_thread)
    from proxy.store.postgres import CONNECTIONS, PostgresDatabase  # noqa: PLC0415  only for those who have Postgres

    return PostgresDatabase(database_url, timeout=timeout, connections=connections or CONNECTIONS)


def open_listener(
    database_url: str | None,
    tells: Mapping[str, Callable[[], None]],
    *,
    turn: Path | None = None,
    wanted: Callable[[], bool] = lambda: True,
) -> PostgresListener | None:
    """Return what calls a channel's callback whenever Postgres says that something changed, or may have been missed.

    None where the store is a file, which says nothing. `turn` lets one process of several listen: the others have to
    see it by other means. One in which it is not `wanted` does not try.
    """
    if not database_url:
        return None
    from proxy.store.postgres_listen import PostgresListener  # noqa: PLC0415  the driver is for those who have Postgres

    def read_again() -> None:
        for tell in tells.values():
            tell()

    heard = {channel: lambda _, tell=tell: tell() for channel, tell in tells.items()}
    return PostgresListener(database_url, heard, read_again, turn=turn, wanted=wanted)


async def copy_out(
    url: str,
    sql: str,
    values: Sequence[Any],
    take: Callable[[bytes], Coroutine[Any, Any, None]],
    timeout: float,  # noqa: ASYNC109
) -> None:
    """Give `take` what a query of a Postgres returns, as COPY's text. Raises StoreUnavailableError."""
    from proxy.store.postgres import copy_rows  # noqa: PLC0415  the driver is for those who have Postgres

    await copy_rows(url, sql, values, take, timeout)


def store_exists(database_url: str | None, state_dir: Path) -> bool:
    """Return whether there is a store to read; one on Postgres is assumed to be there."""
    return bool(database_url) or (state_dir / STORE_FILE).exists()


async def newer_schema(url: str) -> str | None:
    """Name the first migration of a Postgres that only a newer version knows. Raises StoreUnavailableError."""
    from proxy.store.postgres import schema_of  # noqa: PLC0415  the driver is for those who have Postgres

    newer = (await schema_of(url)).newer
    return f"{newer[0].version:04}_{newer[0].name}" if newer else None


async def check_at_start(database: Database) -> None:
    """Raise SchemaError, with what to do, where the database answers and its schema does not fit.

    One that cannot be reached does not stop a start: calls that need it are refused until it is back.
    """
    if host := getattr(database, "unprotected_host", None):
        log.warning(
            "the connection to Postgres may be in plain text, or to somebody else; add sslmode=verify-full to its URL",
            host=host,
        )
    try:
        await database.check()
    except SchemaError:
        raise
    except StoreUnavailableError as error:
        log.warning("the store cannot be reached; two-phase calls are refused until it can", error=str(error))
