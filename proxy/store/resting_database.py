"""A database of another thread, for what is asked all the time: one connection in place of one for each who asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from proxy.errors import StoreUnavailableError
from proxy.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from proxy.store.database import Row, Work


class RestingDatabase(Database):
    """A `database.Database` that any thread and event loop may use. Its owner opens and closes the real one.

    One question after the other: so it needs one connection, however many ask. The work of a transaction runs in the
    owner's thread.
    """

    remote = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._real: Database | None = None
        self._turn = asyncio.Lock()
        self._opened = asyncio.Event()

    def open(self, real: Database) -> None:
        """Begin, in the owner's loop."""
        self._real = real
        self._opened.set()

    @property
    def turn(self) -> asyncio.Lock:
        """For the owner itself: what it asks while it has this is one of those that come one after the other."""
        return self._turn

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self._ask(lambda real: real.fetch(sql, *values))

    async def execute(self, sql: str, *values: Any) -> Sequence[Row]:
        return await self._ask(lambda real: real.execute(sql, *values))

    async def transaction[T](self, work: Work[T], *, read_only: bool = False) -> T:
        return await self._ask(lambda real: real.transaction(work, read_only=read_only))

    async def check(self) -> None:
        await self._ask(lambda real: real.check())

    async def close(self) -> None:
        """Close nothing: the database belongs to whoever opened it."""

    async def _ask[T](self, ask: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        async def in_turn() -> T:
            await self._opened.wait()
            assert self._real is not None
            async with self._turn:
                return await ask(self._real)

        work = in_turn()
        try:
            asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # the loop is closed
            work.close()
            raise StoreUnavailableError("the database is closed") from error
        try:
            return await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            if asked.cancelled() and not _is_cancelled():
                raise StoreUnavailableError("the database was closed") from None
            raise


def _is_cancelled() -> bool:
    """Return whether somebody cancelled the task that asks, and not the database's."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
