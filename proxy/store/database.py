"""Work on a database as steps: written once, carried out alike by SQLite and Postgres. Pure.

Steps yield queries and are sent their rows. SQL is what both databases
understand, with `$1` for the first value; times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

type Row = Sequence[Any]
type Steps[T] = Generator[Query, Sequence[Row], T]


@dataclass(frozen=True, slots=True)
class Query:
    """One statement and the values in it."""

    sql: str
    values: tuple[Any, ...] = ()


class Undo(Exception):  # noqa: N818  no error: an ending
    """Ends a transaction with nothing changed; `result` is what came of it."""

    def __init__(self, result: Any) -> None:
        super().__init__(result)
        self.result = result


class Database(Protocol):
    """Carries steps out, each in one transaction.

    Raises StoreUnavailableError, and nothing else, where that cannot be done in time.
    """

    async def read[T](self, steps: Callable[[], Steps[T]]) -> T:
        """Carry out steps that change nothing."""
        ...

    async def write[T](self, steps: Callable[[bool], Steps[T]]) -> T:
        """Carry out steps and give their result once it is durable.

        Where a connection broke they are made anew with True: it may be that
        they were carried out before.
        """
        ...

    async def check(self) -> None:
        """Reach the database once; SchemaError where its schema is not the one this version needs."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...


def drive[T](steps: Steps[T], execute: Callable[[Query], Sequence[Row]]) -> T:
    """Carry out steps by a function that executes one query."""
    try:
        query = next(steps)
        while True:
            query = steps.send(execute(query))
    except StopIteration as done:
        result: T = done.value
        return result
