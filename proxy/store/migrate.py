"""The schema of Postgres: which migrations it has, and applying those it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from proxy.errors import SchemaError, StoreUnavailableError
from proxy.store.connections import TIMEOUT, connect, unavailable
from proxy.store.migrations import Migration, migrations
from proxy.system.database_url import shown
from proxy.system.package_data import sql_dir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.store.connections import Link

LOCK = 0x696E7465_726C6F63  # "interloc": whoever holds it may migrate
LOCK_SECONDS = 60.0
_APPLIED = "SELECT version, name, checksum, applied_at FROM interlock_migrations ORDER BY version"
_KEEP = "INSERT INTO interlock_migrations (version, name, checksum) VALUES ($1, $2, $3)"


@dataclass(frozen=True, slots=True)
class Applied:
    """A migration that the database has."""

    version: int
    name: str
    checksum: str
    at: float


@dataclass(frozen=True, slots=True)
class Schema:
    """What a database has, beside what this version knows."""

    known: Sequence[Migration]
    applied: Mapping[int, Applied]

    @property
    def missing(self) -> Sequence[Migration]:
        """Those that are still to be applied."""
        return [migration for migration in self.known if migration.version not in self.applied]

    @property
    def changed(self) -> Sequence[Migration]:
        """Those whose text is not the one that was applied."""
        return [
            migration
            for migration in self.known
            if migration.version in self.applied and self.applied[migration.version].checksum != migration.checksum
        ]

    @property
    def newer(self) -> Sequence[Applied]:
        """Those that only a newer version knows."""
        return [applied for version, applied in self.applied.items() if version > len(self.known)]

    def problem(self) -> str | None:
        """Say why this version cannot use the database, and the way out."""
        if self.changed:
            return (
                f"migration {self.changed[0]} was applied here with another text than this interlock has; "
                "put the file back as it was (a change is a new migration), or use the interlock that applied it"
            )
        if self.missing:
            return f"the database lacks migration {self.missing[0]}; run `interlock db migrate`"
        return None


async def check_schema(connection: Link) -> None:
    """Raise SchemaError, with the way out, where this version cannot use the database.

    A database that a newer version migrated can be used: migrations only add.
    """
    problem = (await read_schema(connection)).problem()
    if problem:
        raise SchemaError(problem)


async def read_schema(connection: Link) -> Schema:
    """Read which migrations a database has."""
    try:
        rows = await connection.fetch(_APPLIED)
    except asyncpg.UndefinedTableError:
        rows = []
    return Schema(migrations("postgres"), {row[0]: Applied(*row) for row in rows})


async def schema_of(url: str) -> Schema:
    """Read which migrations the database at `url` has."""
    connection = await connect(url)
    try:
        return await read_schema(connection)
    except Exception as error:
        raise unavailable(url, error) from error
    finally:
        await connection.close(timeout=TIMEOUT)


async def migrate(url: str) -> Sequence[Migration]:
    """Apply what is missing, all or nothing; return what was applied.

    However many do so at once, one does it and the others find it done. Raises
    SchemaError where an applied migration's text has changed since.
    """
    connection = await connect(url)
    try:
        async with connection.transaction():
            return await _apply_missing(connection)
    except asyncpg.LockNotAvailableError as error:
        raise StoreUnavailableError(
            f"a lock that the migration needs is held at {shown(url)}, by another migration or a long transaction; "
            "try again when that has ended"
        ) from error
    except Exception as error:
        raise unavailable(url, error) from error
    finally:
        await connection.close(timeout=TIMEOUT)


async def _apply_missing(connection: Link) -> Sequence[Migration]:
    milliseconds = int(LOCK_SECONDS * 1000)
    await connection.execute(f"SET LOCAL lock_timeout = {milliseconds}; SET LOCAL statement_timeout = 0")
    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK, timeout=2 * LOCK_SECONDS)
    await connection.execute((sql_dir() / "postgres_migrations.sql").read_text())
    schema = await read_schema(connection)
    if schema.changed:
        raise SchemaError(schema.problem())
    for migration in schema.missing:
        await connection.execute(migration.text, timeout=float("inf"))
        await connection.execute(_KEEP, migration.version, migration.name, migration.checksum)
    return schema.missing
