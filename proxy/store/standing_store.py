"""The store of standing approvals, on any database. Each method is one transaction."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from proxy.core.approvals import StandingApproval
from proxy.store.packed_text import pack, unpack
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.store.database import Database, Row, Transaction

SQL = Queries("proposals")
SWEEP_ROWS = 1000
_FIELDS = tuple(field.name for field in fields(StandingApproval))
_JSON = ("vary", "arguments")
_TIMES = ("created_at", "expires_at", "revoked_at")


class StandingApprovals:
    """An `approvals.StandingStore` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, standing: StandingApproval) -> None:
        await self._database.execute(SQL["insert_standing"], *_row(standing))

    async def newest(self, limit: int = 100) -> Sequence[StandingApproval]:
        return [_standing(row) for row in await self._database.fetch(SQL["list_standing"], limit)]

    async def find(self, standing_id: str) -> StandingApproval | None:
        return _one(await self._database.fetch(SQL["find_standing"], pack(standing_id)))

    async def live(self, server: str, tool: str, principal: str, rule: str, now: float) -> Sequence[StandingApproval]:
        names = map(pack, (server, tool, principal, rule))
        return [_standing(row) for row in await self._database.fetch(SQL["live_standing"], *names, float(now))]

    async def use(self, standing_id: str, call_id: str, now: float) -> StandingApproval | None:
        ours = (pack(standing_id), pack(call_id))

        async def work(connection: Transaction) -> Sequence[Row]:
            # Counted before a connection broke: this call must not cost two.
            counted = await connection.fetch(SQL["find_used_standing"], *ours) if connection.retried else ()
            return counted or await connection.fetch(SQL["use_standing"], *ours, float(now))

        return _one(await self._database.transaction(work))

    async def revoke(self, standing_id: str, operator: str, now: float) -> StandingApproval | None:
        ours = (pack(standing_id), pack(operator), float(now))

        async def work(connection: Transaction) -> Sequence[Row]:
            rows = await connection.fetch(SQL["revoke_standing"], *ours)
            if connection.retried and not rows:
                rows = await connection.fetch(SQL["find_revoked_standing"], *ours)
            return rows

        return _one(await self._database.transaction(work))

    async def sweep(self, before: float) -> int:
        gone, deleted = 0, SWEEP_ROWS
        while deleted == SWEEP_ROWS:
            deleted = len(await self._database.execute(SQL["delete_old_standing"], float(before), SWEEP_ROWS))
            gone += deleted
        return gone


def _one(rows: Sequence[Row]) -> StandingApproval | None:
    return _standing(rows[0]) if rows else None


def _row(standing: StandingApproval) -> tuple[Any, ...]:
    return tuple(_column(name, getattr(standing, name)) for name in _FIELDS)


def _column(name: str, value: Any) -> Any:
    if name in _JSON:
        return json.dumps(value, allow_nan=False)
    if name in _TIMES and value is not None:
        return float(value)
    return pack(value) if isinstance(value, str) else value


def _standing(row: Row) -> StandingApproval:
    found = dict(zip(_FIELDS, row, strict=True))
    found |= {name: unpack(value) for name, value in found.items() if isinstance(value, str) and name not in _JSON}
    found |= {"vary": tuple(json.loads(found["vary"])), "arguments": json.loads(found["arguments"])}
    return StandingApproval(**found)
