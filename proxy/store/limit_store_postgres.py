"""What is used of limits, among all replicas that share a Postgres. Each method is one round trip."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from proxy.core.limits import Exceeded, Usage
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.limits import Charge
    from proxy.store.database import Database

SQL: Final = Queries("limits_postgres")
PLACE_SECONDS: Final = 60.0
SWEEP_ROWS: Final = 1000


class PostgresLimits:
    """A `limits.LimitStore` on Postgres: the database's clock counts, and its locks make it exact."""

    def __init__(self, database: Database, upkeep: Database | None = None) -> None:
        """`upkeep`: what deletes old uses; without it, another process does."""
        self._database = database
        self._upkeep = upkeep
        self._places: set[str] = set()

    async def reserve(self, call_id: str, charges: Sequence[Charge]) -> Sequence[Exceeded]:
        exceeded = await self._ask(call_id, charges, charging=True)
        if not any(one.charge.blocks for one in exceeded) and any(not charge.seconds for charge in charges):
            self._places.add(call_id)
        return exceeded

    async def look(self, charges: Sequence[Charge]) -> Sequence[Exceeded]:
        return await self._ask("", charges, charging=False)

    async def _ask(self, call_id: str, charges: Sequence[Charge], *, charging: bool) -> Sequence[Exceeded]:
        asked = json.dumps([_asked(charge) for charge in charges])
        rows = await self._database.execute(SQL["reserve"], call_id, asked, charging, PLACE_SECONDS)
        return [Exceeded(charges[number], int(used), retry_after) for number, used, retry_after in rows]

    async def give_back(self, call_id: str, charges: Sequence[Charge]) -> None:
        self._places.discard(call_id)
        await self._database.execute(SQL["give_back"], call_id, [charge.budget for charge in charges])

    async def release(self, call_id: str, charges: Sequence[Charge]) -> None:
        taken = [charge.budget for charge in charges if not charge.seconds]
        if taken:
            self._places.discard(call_id)
            await self._database.execute(SQL["leave_places"], call_id, taken)

    async def usage(self, windows: Sequence[tuple[str, float]]) -> Sequence[Usage]:
        found = []
        for beginning, seconds in windows:
            if seconds:
                rows = await self._database.fetch(SQL["usage"], beginning, float(seconds))
            else:
                rows = await self._database.fetch(SQL["usage_of_places"], beginning)
            found += [Usage(budget, int(used), calls, newest) for budget, used, calls, newest in rows]
        return found

    async def maintain(self) -> None:
        if self._places:
            await self._database.execute(SQL["renew_places"], sorted(self._places), PLACE_SECONDS)
        if self._upkeep is None:
            return
        await self._upkeep.execute(SQL["leave_dead_places"])
        while len(await self._upkeep.execute(SQL["delete_old_uses"], SWEEP_ROWS)) == SWEEP_ROWS:
            pass

    async def close(self) -> None:
        """Close nothing: the database belongs to whoever opened it."""


def _asked(charge: Charge) -> dict[str, object]:
    # Numbers as text: JSON's own would go through a float on the way.
    return {
        "budget": charge.budget,
        "amount": str(charge.amount),
        "most": str(charge.most),
        "seconds": charge.seconds,
        "blocks": charge.blocks,
    }
