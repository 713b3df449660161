"""The store of halts, on any database. Each method is one transaction, and each change raises the generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.core.halts import Halt, HaltList
from proxy.core.ids import new_id
from proxy.store.packed_text import pack, unpack
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.store.database import Database, Row, Transaction

SQL = Queries("halts")
CHANNEL = "interlock_halts"  # Postgres tells of changes there (sql/postgres/0008_limits.sql)


class Halts:
    """A `halts.HaltStore` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self) -> HaltList:
        async def work(connection: Transaction) -> HaltList:
            state = await connection.fetch(SQL["halt_generation"])
            return await _list(connection, state[0] if state else ("", 0))

        return await self._database.transaction(work, read_only=True)

    async def add(self, halts: Sequence[Halt]) -> HaltList:
        async def work(connection: Transaction) -> HaltList:
            for halt in halts:
                await connection.fetch(SQL["insert_halt"], *_row(halt))
            return await _changed(connection)

        return await self._database.transaction(work)

    async def remove(self, halt_ids: Sequence[str]) -> HaltList:
        async def work(connection: Transaction) -> HaltList:
            for halt_id in halt_ids:
                await connection.fetch(SQL["delete_halt"], pack(halt_id))
            return await _changed(connection)

        return await self._database.transaction(work)


async def _changed(connection: Transaction) -> HaltList:
    rows = await connection.fetch(SQL["next_generation"])
    if not rows:
        await connection.fetch(SQL["first_generation"], new_id())
        rows = await connection.fetch(SQL["next_generation"])
    return await _list(connection, rows[0])


async def _list(connection: Transaction, state: Row) -> HaltList:
    return HaltList(state[0], state[1], tuple(_halt(row) for row in await connection.fetch(SQL["list_halts"])))


def _row(halt: Halt) -> tuple[object, ...]:
    scope = tuple(None if name is None else pack(name) for name in (halt.agent, halt.server, halt.tool))
    said = (pack(halt.reason), pack(halt.operator), float(halt.created_at), pack(halt.origin))
    return (pack(halt.halt_id), *scope, int(halt.cut), *said)


def _halt(row: Row) -> Halt:
    halt_id, agent, server, tool, cut, reason, operator, created_at, origin = row
    return Halt(
        halt_id=unpack(halt_id),
        reason=unpack(reason),
        operator=unpack(operator),
        created_at=created_at,
        agent=_name(agent),
        server=_name(server),
        tool=_name(tool),
        cut=bool(cut),
        origin=unpack(origin),
    )


def _name(column: str | None) -> str | None:
    return None if column is None else unpack(column)
