"""The store of rules that agents propose, on any database. Each method is one transaction."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final

from proxy.core.rule_proposals import Room, RuleProposal, RuleState
from proxy.store.packed_text import pack, unpack
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.store.database import Database, Row, Transaction

SQL = Queries("rule_proposals")
KEPT_SECONDS: Final = 30 * 86_400.0
HOUR: Final = 3600.0
_FIELDS: Final = tuple(field.name for field in fields(RuleProposal))


class RuleProposals:
    """A `rule_proposals.RuleProposalStore` on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, proposal: RuleProposal, room: Room) -> RuleProposal | None:
        agent, now = pack(proposal.agent), float(proposal.created_at)

        async def work(connection: Transaction) -> RuleProposal | None:
            same = await connection.fetch(SQL["same_rule_proposal"], agent, proposal.digest)
            if same:
                return _proposal(same[0])
            await connection.fetch(SQL["delete_old_rules"], now - KEPT_SECONDS)
            counts = (
                (room.of_all, await connection.fetch(SQL["count_waiting_rules"])),
                (room.of_agent, await connection.fetch(SQL["count_waiting_rules_of"], agent)),
                (room.an_hour, await connection.fetch(SQL["count_new_rules_of"], agent, now - HOUR)),
            )
            if any(rows[0][0] >= most for most, rows in counts):
                return None
            texts = (proposal.rule_id, proposal.text, proposal.why)
            named = (proposal.digest, proposal.call_id, proposal.policy_version)
            row = (proposal.proposal_id, agent, *map(pack, texts), *named, now)
            await connection.fetch(SQL["insert_rule_proposal"], *row)
            return proposal

        return await self._database.transaction(work)

    async def find(self, proposal_id: str) -> RuleProposal | None:
        return _one(await self._database.fetch(SQL["find_rule_proposal"], pack(proposal_id)))

    async def newest(self, states: Sequence[RuleState], limit: int) -> Sequence[RuleProposal]:
        asked = [str(state) for state in states or RuleState]
        wanted = [*asked, *[asked[0]] * (len(RuleState) - len(asked))]
        return [_proposal(row) for row in await self._database.fetch(SQL["list_rule_proposals"], *wanted, limit)]

    async def decide(
        self, proposal_id: str, state: RuleState, operator: str, reason: str, now: float
    ) -> RuleProposal | None:
        decided = (str(state), pack(operator), pack(reason), float(now))

        async def work(connection: Transaction) -> RuleProposal | None:
            rows = await connection.fetch(SQL["decide_rule_proposal"], pack(proposal_id), *decided)
            if not rows and connection.retried:
                # Ours, where the connection broke after the commit.
                rows = await connection.fetch(SQL["find_rule_proposal"], pack(proposal_id))
                found = _one(rows)
                mine = found is not None and (found.state, found.operator, found.decided_at) == (state, operator, now)
                return found if mine else None
            return _one(rows)

        return await self._database.transaction(work)


def _one(rows: Sequence[Row]) -> RuleProposal | None:
    return _proposal(rows[0]) if rows else None


def _proposal(row: Row) -> RuleProposal:
    found = dict(zip(_FIELDS, row, strict=True))
    packed = ("agent", "rule_id", "text", "why", "operator", "reason")
    found |= {name: unpack(found[name]) for name in packed if found[name] is not None}
    return RuleProposal(**found | {"state": RuleState(found["state"])})
