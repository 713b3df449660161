"""The store of two-phase execution, on any database.

Each method is one transaction (a sweep is several), so that what belongs
together changes together, whatever breaks.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from proxy.core.approvals import ApprovedCall, GivenApproval
from proxy.core.proposals import AWAITED, Baseline, Commit, Consumed, Proposal, State
from proxy.errors import StoreUnavailableError
from proxy.store.database import Database, Rollback, Row, Transaction
from proxy.store.packed_text import pack, unpack
from proxy.store.queries import Queries
from proxy.store.standing_store import StandingApprovals

if TYPE_CHECKING:
    from collections.abc import Sequence


SQL = Queries("proposals")
REMOTE_SQL = Queries("proposals_postgres")
SWEEP_ROWS = 1000
PROPOSE_TRIES = 5
_PROPOSAL = tuple(field.name for field in fields(Proposal))
_COMMIT = (
    *("proposal_id", "nonce", "attempt_id", "at", "expires_at", "outcome", "ended_at"),
    *("attempts", "question", "token_id"),
)  # in the order of the query `find_commit`
_JSON = ("arguments", "signals", "absent", "parts")
_COUNTS = ("people", "approvals")
_PACKED = (
    *("proposal_id", "server", "tool", "principal", "arguments_hash", "rule", "policy_version", "nonce"),
    *("reason", "call_id", "operator", "operator_reason", "standing_id"),
)


class Proposals:
    """A `proposals.ProposalStore` on a database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.standing = StandingApprovals(database)

    async def propose(self, proposal: Proposal, now: float) -> Proposal:
        """Store `proposal` and return it, or the one that already waits for the same call."""
        # One statement where nothing is in the way; what it did before a connection broke is found below.
        if self.database.remote and await self._inserted(proposal):
            return proposal
        return await self.database.transaction(lambda connection: _propose(connection, proposal, now))

    async def _inserted(self, proposal: Proposal) -> bool:
        try:
            row = _stored_row(proposal)
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreUnavailableError(f"proposal {proposal.proposal_id!r} cannot be stored: {error}") from error
        return bool(await self.database.execute(SQL["insert_proposal"], *row))

    async def awaited(self, server: str, tool: str, principal: str, arguments_hash: str, now: float) -> Proposal | None:
        key = call_key(server, tool, principal, arguments_hash)
        return _one(await self.database.fetch(SQL["find_awaited_proposal"], key, float(now)))

    async def asked(
        self, server: str, tool: str, principal: str, arguments_hash: str, question: str
    ) -> Proposal | None:
        key = call_key(server, tool, principal, arguments_hash)
        return _one(await self.database.fetch(SQL["find_asked_proposal"], key, question))

    async def proposal(self, proposal_id: str) -> Proposal | None:
        return _one(await self.database.fetch(SQL["find_proposal"], pack(proposal_id)))

    async def proposals(self, states: Sequence[State] = (), limit: int = 100) -> Sequence[Proposal]:
        wanted = [str(state) for state in dict.fromkeys(states or State)]
        wanted += wanted[:1] * (len(State) - len(wanted))  # the statement has one mark for each state there is
        rows = await self.database.fetch(SQL["newest_proposals"], limit, *wanted)
        return [to_proposal(row) for row in rows]

    async def waiting(self, now: float) -> int:
        """Return how many proposals wait for people."""
        return int((await self.database.fetch(SQL["count_waiting"], float(now)))[0][0])

    async def decide(
        self, proposal_id: str, state: State, *, operator: str, reason: str, now: float, expires_at: float
    ) -> Proposal | None:
        if state not in (State.APPROVED, State.REJECTED):
            raise ValueError(f"an operator approves or rejects; {state} is neither")
        key, who, at = pack(proposal_id), pack(operator), float(now)
        values = (key, who, pack(reason), at)
        if state is State.REJECTED:
            changed = (*values, float(expires_at))
            return _one(await self._change("reject_proposal", changed, "find_rejected_proposal", (key, who, at)))
        return await self.database.transaction(lambda link: _approve(link, values, float(expires_at)))

    async def approvals(self, proposal_id: str) -> Sequence[GivenApproval]:
        rows = await self.database.fetch(SQL["list_approvals"], pack(proposal_id))
        return [GivenApproval(unpack(row[0]), unpack(row[1]), row[2]) for row in rows]

    async def approved_call(self, server: str, tool: str) -> ApprovedCall | None:
        rows = await self.database.fetch(SQL["find_approved_call"], pack(server), pack(tool))
        if not rows:
            return None
        server, tool, proposal_id, principal, arguments, operator, at = rows[0]
        server, tool, proposal_id, principal = map(unpack, (server, tool, proposal_id, principal))
        return ApprovedCall(server, tool, proposal_id, principal, json.loads(arguments), unpack(operator), at)

    async def consume(self, commit: Commit) -> Consumed:
        # One statement for the winner. Everybody else, and who cannot know after a broken connection, asks below.
        if self.database.remote and await self.database.execute(REMOTE_SQL["commit_at_once"], *commit_row(commit)):
            return Consumed.OURS
        return await self.database.transaction(lambda connection: _consume(connection, commit))

    async def commit(self, nonce: str) -> Commit | None:
        rows = await self.database.fetch(SQL["find_commit"], pack(nonce))
        return to_commit(rows[0]) if rows else None

    async def resume(self, nonce: str, attempt_id: str, question: str) -> bool:
        ours = (pack(nonce), pack(attempt_id))
        return bool(await self._change("resume_commit", (*ours, question), "find_resumed_commit", ours))

    async def end(self, nonce: str, attempt_id: str, outcome: str, now: float, question: str | None = None) -> bool:
        ours = (pack(nonce), pack(attempt_id), outcome, float(now))
        return bool(await self._change("end_commit", (*ours, question), "find_ended_commit", ours))

    async def check_writable(self) -> None:
        """Raise StoreUnavailableError where no proposal can be read or stored now."""
        await self.baseline("", "")  # what every proposal asks first
        # A URL may lead to a standby since a failover: it answers, and takes nothing.
        if self.database.remote and (await self.database.fetch(REMOTE_SQL["takes_no_writes"]))[0][0]:
            raise StoreUnavailableError("the database takes no writes: it is a standby, or was made read-only")

    async def baseline(self, server: str, tool: str) -> Baseline | None:
        rows = await self.database.fetch(SQL["find_baseline"], pack(server), pack(tool))
        return to_baseline(rows[0]) if rows else None

    async def baselines(self) -> Sequence[Baseline]:
        return [to_baseline(row) for row in await self.database.fetch(SQL["list_baselines"])]

    async def set_baseline(self, baseline: Baseline) -> None:
        await self.database.execute(SQL["set_baseline"], *baseline_row(baseline))

    async def remove_baseline(self, server: str, tool: str) -> bool:
        return bool(await self.database.execute(SQL["remove_baseline"], pack(server), pack(tool)))

    async def sweep(self, now: float, grace: float) -> int:
        """Mark what has expired, and delete what expired more than `grace` ago; return how many rows are gone."""
        await self.database.execute(SQL["expire_proposals"], float(now))
        gone = 0
        for statement in (SQL["delete_old_commits"], SQL["delete_old_proposals"]):
            deleted = SWEEP_ROWS
            while deleted == SWEEP_ROWS:  # some at a time: a long statement would block the commits of others
                deleted = len(await self.database.execute(statement, float(now - grace), SWEEP_ROWS))
                gone += deleted
        return gone + await self.standing.sweep(now - grace)

    async def close(self) -> None:
        await self.database.close()

    async def _change(self, change: str, values: Row, read_back: str, read_values: Row) -> Sequence[Row]:
        """Return the row that was changed: in this try, or before a connection broke, which is then read back."""

        async def work(connection: Transaction) -> Sequence[Row]:
            rows = await connection.fetch(SQL[change], *values)
            if connection.retried and not rows:
                rows = await connection.fetch(SQL[read_back], *read_values)
            return rows

        return await self.database.transaction(work)


def _stored_row(proposal: Proposal) -> tuple[Any, ...]:
    key = call_key(proposal.server, proposal.tool, proposal.principal, proposal.arguments_hash)
    return (*proposal_row(proposal), key, proposal.state in AWAITED)


async def _propose(connection: Transaction, proposal: Proposal, now: float) -> Proposal:
    key = call_key(proposal.server, proposal.tool, proposal.principal, proposal.arguments_hash)
    waits = proposal.state in AWAITED
    row = _stored_row(proposal)
    for _ in range(PROPOSE_TRIES):
        if waits:
            # One that has expired but was not swept yet would hold the unique index against the new one.
            await connection.fetch(SQL["expire_proposals_of_call"], float(now), key)
        if await connection.fetch(SQL["insert_proposal"], *row):
            return proposal
        # It was stored before a connection broke, or another one waits, or did until a moment ago.
        found = await connection.fetch(SQL["find_proposal"], row[0]) or await connection.fetch(
            SQL["find_awaited_proposal"], key, float(now)
        )
        if found:
            return to_proposal(found[0])
    raise StoreUnavailableError(f"proposal {proposal.proposal_id!r} can be neither stored nor found")


async def _approve(connection: Transaction, values: Row, expires_at: float) -> Proposal | None:
    """Count one operator's approval; return the proposal as it is then, or None where it does not count."""
    if not await connection.fetch(SQL["insert_approval"], *values):
        # Ours from before a connection broke, or this operator approved earlier, or it waits no longer.
        ours = await connection.fetch(SQL["find_approval"], *values[:2], values[3]) if connection.retried else ()
        return _one(await connection.fetch(SQL["find_proposal"], values[0])) if ours else None
    counted = _one(await connection.fetch(SQL["count_approval"], *values, expires_at))
    if counted is None:
        raise Rollback(None)  # rejected in between: then the approval is not kept either
    if counted.state is State.APPROVED:
        await connection.fetch(SQL["note_approved_call"], values[0])
    return counted


async def _consume(connection: Transaction, commit: Commit) -> Consumed:
    row = commit_row(commit)
    # The update locks the proposal's row (SQLite: BEGIN IMMEDIATE did): of several at once, the others wait here.
    if await connection.fetch(SQL["mark_committed"], *row[:2]):
        if await connection.fetch(SQL["consume_nonce"], *row):
            return Consumed.OURS
        # The nonce has the last word: it is consumed, whatever its proposal says.
        raise Rollback(Consumed.REPLAY)
    owner = await connection.fetch(SQL["nonce_owner"], row[1])
    if not owner:
        return Consumed.UNKNOWN
    # Our own attempt_id: this very call consumed it before its connection broke.
    return Consumed.OURS if owner[0][0] == row[2] else Consumed.REPLAY


def _one(rows: Sequence[Row]) -> Proposal | None:
    return to_proposal(rows[0]) if rows else None


def call_key(server: str, tool: str, principal: str, arguments_hash: str) -> str:
    """Return a short key for one exact call, however long its names are."""
    return hashlib.sha256(json.dumps([server, tool, principal, arguments_hash]).encode()).hexdigest()


def proposal_row(proposal: Proposal) -> tuple[Any, ...]:
    """Return a proposal as `insert_proposal` takes it: its fields in their order."""
    return tuple(_column(name, getattr(proposal, name)) for name in _PROPOSAL)


def _column(name: str, value: Any) -> Any:
    if name in _JSON:
        # In ASCII: NUL and halves of surrogate pairs stay escapes. NaN is no JSON, and Postgres would refuse it later.
        return json.dumps(value, allow_nan=False, default=dict)
    if isinstance(value, str):
        return pack(value)
    return float(value) if isinstance(value, int) and name not in _COUNTS else value


def to_proposal(row: Row) -> Proposal:
    """Return the proposal in a row of `find_proposal`, whose columns are its fields in their order."""
    found = dict(zip(_PROPOSAL, row, strict=True))
    found |= {name: json.loads(found[name]) for name in _JSON}
    found |= {name: unpack(found[name]) for name in _PACKED if found[name] is not None}
    return Proposal(**found | {"state": State(found["state"])})


def commit_row(commit: Commit) -> tuple[Any, ...]:
    c = commit
    ids = map(pack, (c.proposal_id, c.nonce, c.attempt_id))
    return (*ids, float(c.at), float(c.expires_at), c.outcome, c.ended_at, c.attempts, c.question, c.token_id)


def to_commit(row: Row) -> Commit:
    found = dict(zip(_COMMIT, row, strict=True))
    return Commit(**found | {name: unpack(found[name]) for name in _COMMIT[:3]})


def baseline_row(baseline: Baseline) -> tuple[Any, ...]:
    b = baseline
    return (*map(pack, (b.server, b.tool, b.prompt_hash)), float(b.set_at), pack(b.set_by))


def to_baseline(row: Row) -> Baseline:
    return Baseline(unpack(row[0]), unpack(row[1]), unpack(row[2]), row[3], unpack(row[4]))
