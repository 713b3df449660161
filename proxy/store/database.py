"""What the stores need of a database; SQLite and Postgres offer it alike.

SQL is what both understand, with `$1` for the first value. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

type Row = Sequence[Any]
type Work[T] = Callable[[Transaction], Awaitable[T]]


class Rollback(Exception):  # noqa: N818  no error: an ending
    """Raised by the work of a transaction to end it with nothing changed; `result` is what the caller gets."""

    def __init__(self, result: Any) -> None:
        super().__init__(result)
        self.result = result


class Transaction(Protocol):
    """Statements that are committed together. `retried`: an earlier try may have been committed, unknown to us."""

    retried: bool

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run one statement and return its rows."""


class Database(Protocol):
    """Runs statements. Every method raises StoreUnavailableError, and nothing else, where that cannot be done in time.

    `execute` and `transaction` return once what they changed is durable. Where a connection breaks they try again,
    because a broken connection looks the same before and after its commit.
    """

    remote: bool = False  # whether each statement is a round trip

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run one statement that changes nothing and return its rows."""
        return await self.transaction(lambda connection: connection.fetch(sql, *values), read_only=True)

    async def execute(self, sql: str, *values: Any) -> Sequence[Row]:
        """Run one statement that may be repeated without harm; return the rows it gives back."""
        return await self.transaction(lambda connection: connection.fetch(sql, *values))

    async def transaction[T](self, work: Work[T], *, read_only: bool = False) -> T:
        """Run `work` in one transaction and return its result. It may await nothing but the transaction's `fetch`."""

    def version(self) -> object | None:
        """Return, at once, what changes whenever another connection has committed; None where that cannot be told."""
        return None

    async def check(self) -> None:
        """Reach the database once. Raises SchemaError where its schema is not the one this version needs."""

    async def close(self) -> None:
        """Release files and connections."""
