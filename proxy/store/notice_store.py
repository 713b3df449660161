"""The outbox of notices, on any database: what is to be told to whom, once for each state of a proposal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from proxy.core.notices import DueNotice
from proxy.core.proposals import State
from proxy.store.packed_text import pack, unpack
from proxy.store.proposal_store import to_proposal
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import JsonObject
    from proxy.core.proposals import Proposal
    from proxy.store.database import Database

SQL = Queries("notices")


class Notices:
    """A `notices.Outbox` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def untold(self, target: str, now: float, limit: int = 50) -> Sequence[tuple[Proposal, State]]:
        rows = await self._database.fetch(SQL["untold_proposals"], target, float(now), limit)
        return [(to_proposal(row[:-1]), State(row[-1])) for row in rows]

    async def add(self, target: str, proposal_id: str, state: State, body: JsonObject, now: float) -> bool:
        values = (target, pack(proposal_id), str(state), json.dumps(body), float(now))
        return bool(await self._database.execute(SQL["insert_notice"], *values))

    async def claim(self, now: float, until: float) -> DueNotice | None:
        for target, proposal_id, state, body, attempts in await self._database.fetch(SQL["due_notices"], float(now)):
            key = (target, proposal_id, state)
            if await self._database.execute(SQL["claim_notice"], *key, attempts, float(until)):
                return DueNotice(target, unpack(proposal_id), State(state), json.loads(body), attempts)
        return None

    async def sent(self, notice: DueNotice, now: float) -> None:
        await self._database.execute(SQL["notice_sent"], *_key(notice), float(now))

    async def failed(self, notice: DueNotice, problem: str, due_at: float) -> None:
        await self._database.execute(SQL["notice_failed"], *_key(notice), problem, float(due_at))

    async def give_up(self, notice: DueNotice, problem: str, now: float) -> None:
        await self._database.execute(SQL["notice_given_up"], *_key(notice), problem, float(now))

    async def sweep(self, before: float) -> None:
        await self._database.execute(SQL["delete_old_notices"], float(before))


def _key(notice: DueNotice) -> tuple[str, str, str]:
    return notice.target, pack(notice.proposal_id), str(notice.state)
