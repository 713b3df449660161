"""The numbered migrations that come with Interlock, and applying to a Postgres database those that it lacks."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from proxy.errors import SchemaError
from proxy.store.queries import Queries
from proxy.system.package_data import sql_dir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from proxy.store.postgres import Link

SQL = Queries("migrations")
LOCK = 0x696E7465_726C6F63  # "interloc": a process that holds it may migrate
LOCK_SECONDS = 60.0
_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a schema: applied once, and never changed afterwards."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.version:04}_{self.name}"


@dataclass(frozen=True, slots=True)
class Applied:
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
        return [migration for migration in self.known if migration.version not in self.applied]

    @property
    def changed(self) -> Sequence[Migration]:
        """Those whose text is not the one that was applied."""
        both = [migration for migration in self.known if migration.version in self.applied]
        return [migration for migration in both if self.applied[migration.version].checksum != migration.checksum]

    @property
    def newer(self) -> Sequence[Applied]:
        """Those that only a newer version knows."""
        return [applied for version, applied in self.applied.items() if version > len(self.known)]

    def problem(self) -> str | None:
        """Return why this version cannot use the database and what to do; None where it can."""
        if self.changed:
            return (
                f"migration {self.changed[0]} was applied here with another text than this interlock has; "
                "put the file back as it was (a change is a new migration), or use the interlock that applied it"
            )
        if self.missing:
            return f"the database lacks migration {self.missing[0]}; run `interlock db migrate`"
        return None


def migrations(database: Literal["postgres", "sqlite"]) -> tuple[Migration, ...]:
    return read_migrations(sql_dir() / database)


def read_migrations(folder: Path) -> tuple[Migration, ...]:
    """Return the migrations in a folder, in order. Raises ValueError where they are not numbered from 1, one by one."""
    found = []
    for number, file in enumerate(sorted(folder.glob("*.sql")), start=1):
        match = _NAME.fullmatch(file.name)
        if match is None or int(match[1]) != number:
            raise ValueError(f"{file} is not {number:04}_name.sql")
        found.append(Migration(number, match[2], file.read_text()))
    return tuple(found)


async def read_schema(connection: Link) -> Schema:
    # Checked first, because a statement that fails would end the transaction that `apply_missing` is in.
    has_table = await connection.fetchval(SQL["has_migrations_table"])
    rows = await connection.fetch(SQL["list_applied"]) if has_table else []
    return Schema(migrations("postgres"), {row[0]: Applied(*row) for row in rows})


async def check_schema(connection: Link) -> None:
    """Raise SchemaError, with what to do, where this version cannot use the database.

    A database that a newer version migrated can be used: migrations only add.
    """
    if problem := (await read_schema(connection)).problem():
        raise SchemaError(problem)


async def apply_missing(connection: Link) -> Sequence[Migration]:
    """Apply what is missing, within a transaction; return what was applied.

    Raises SchemaError where the text of an applied migration has changed since.
    """
    milliseconds = int(LOCK_SECONDS * 1000)
    # A migration may take as long as it needs, but not wait for ever for a lock that somebody forgot.
    await connection.execute(f"SET LOCAL lock_timeout = {milliseconds}; SET LOCAL statement_timeout = 0")
    # Of several that migrate at once, one does it; the others wait here and then find it done.
    await connection.execute(SQL["take_migration_lock"], LOCK, timeout=2 * LOCK_SECONDS)
    await connection.execute((sql_dir() / "postgres_migrations.sql").read_text())
    schema = await read_schema(connection)
    if schema.changed:
        raise SchemaError(schema.problem())
    for migration in schema.missing:
        await connection.execute(migration.text, timeout=float("inf"))
        await connection.execute(SQL["insert_applied"], migration.version, migration.name, migration.checksum)
    return schema.missing
