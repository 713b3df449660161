"""The store of two-phase execution, on any database.

Each method is one transaction (a sweep is several), so that what belongs
together changes together, whatever breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.core.proposals import AWAITED, Baseline, Commit, Consumed, Proposal, State
from proxy.errors import StoreUnavailableError
from proxy.store.database import Query, Undo
from proxy.store.rows import (
    BASELINE,
    COMMIT,
    PROPOSAL,
    baseline_row,
    call_key,
    commit_row,
    pack,
    proposal_row,
    to_baseline,
    to_commit,
    to_proposal,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.store.database import Database, Row, Steps

SWEEP_ROWS = 1000
PROPOSE_TRIES = 5


def _values(columns: str) -> str:
    return ", ".join(f"${number}" for number in range(1, columns.count(",") + 2))


# A rejected proposal stays one: that it is over is told by its time.
_EXPIRE = (
    "UPDATE proposals SET state = CASE state WHEN 'rejected' THEN state ELSE 'expired' END, awaited = false "
    "WHERE expires_at <= $1 AND (awaited OR state IN ('proposed', 'pending', 'approved'))"
)
_EXPIRE_CALL = f"{_EXPIRE} AND call_key = $2"
_KEPT = f"{PROPOSAL}, call_key, awaited"
_KEEP = f"INSERT INTO proposals ({_KEPT}) VALUES ({_values(_KEPT)}) ON CONFLICT DO NOTHING RETURNING proposal_id"
_FIND = f"SELECT {PROPOSAL} FROM proposals WHERE proposal_id = $1"
_FIND_AWAITED = f"SELECT {PROPOSAL} FROM proposals WHERE call_key = $1 AND awaited AND expires_at > $2"
_NEWEST = (
    f"SELECT {PROPOSAL} FROM proposals WHERE state IN ($2, $3, $4, $5, $6, $7, $8) "
    "ORDER BY created_at DESC, proposal_id DESC LIMIT $1"
)
_DECIDE = (
    "UPDATE proposals SET state = $2, operator = $3, operator_reason = $4, operator_at = $5, expires_at = $6 "
    "WHERE proposal_id = $1 AND expires_at > $5 "
    "AND (state = 'pending' OR (state = 'approved' AND $2 = 'rejected')) "
    f"RETURNING {PROPOSAL}"
)
_FIND_DECIDED = f"{_FIND} AND state = $2 AND operator = $3 AND operator_at = $4"

_MARK_COMMITTED = (
    "UPDATE proposals SET state = 'committed', awaited = false "
    "WHERE proposal_id = $1 AND nonce = $2 AND state IN ('proposed', 'approved') RETURNING proposal_id"
)
_CONSUME = f"INSERT INTO commits ({COMMIT}) VALUES ({_values(COMMIT)}) ON CONFLICT DO NOTHING RETURNING nonce"
_OWNER = "SELECT attempt_id FROM commits WHERE nonce = $1"
_FIND_COMMIT = f"SELECT {COMMIT} FROM commits WHERE nonce = $1"
_RESUME = (
    "UPDATE commits SET outcome = NULL, ended_at = NULL, question = NULL, attempt_id = $2, attempts = attempts + 1 "
    "WHERE nonce = $1 AND outcome = 'input_required' AND question = $3 RETURNING nonce"
)
_RESUMED = "SELECT nonce FROM commits WHERE nonce = $1 AND attempt_id = $2 AND outcome IS NULL"
_END = (
    "UPDATE commits SET outcome = $3, ended_at = $4, question = $5 "
    "WHERE nonce = $1 AND attempt_id = $2 AND outcome IS NULL RETURNING nonce"
)
_ENDED = "SELECT nonce FROM commits WHERE nonce = $1 AND attempt_id = $2 AND outcome = $3 AND ended_at = $4"

_FIND_BASELINE = (
    f"SELECT {BASELINE} FROM tool_prompt_baselines WHERE tool = $2 AND server IN ($1, '') ORDER BY server = '' LIMIT 1"
)
_BASELINES = f"SELECT {BASELINE} FROM tool_prompt_baselines ORDER BY server, tool"
_SET_BASELINE = (
    f"INSERT INTO tool_prompt_baselines ({BASELINE}) VALUES ({_values(BASELINE)}) "
    "ON CONFLICT (server, tool) DO UPDATE "
    "SET prompt_hash = excluded.prompt_hash, set_at = excluded.set_at, set_by = excluded.set_by"
)
_REMOVE_BASELINE = "DELETE FROM tool_prompt_baselines WHERE server = $1 AND tool = $2 RETURNING tool"

_SWEEP_COMMITS = (
    "DELETE FROM commits WHERE nonce IN "
    "(SELECT nonce FROM commits WHERE expires_at < $1 AND outcome IS NOT NULL LIMIT $2) RETURNING nonce"
)
# A proposal stays as long as its commit does.
_SWEEP_PROPOSALS = (
    "DELETE FROM proposals WHERE proposal_id IN (SELECT proposal_id FROM proposals WHERE expires_at < $1 "
    "AND NOT EXISTS (SELECT 1 FROM commits WHERE commits.proposal_id = proposals.proposal_id) LIMIT $2) "
    "RETURNING proposal_id"
)


class Proposals:
    """Implements `proposals.ProposalStore` on a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def propose(self, proposal: Proposal, now: float) -> Proposal:
        """Keep `proposal` and give it back, or the one that waits in its place."""
        return await self.database.write(lambda _: _propose(proposal, now))

    async def awaited(self, server: str, tool: str, principal: str, arguments_hash: str, now: float) -> Proposal | None:
        """Return the proposal that waits for exactly this call."""
        key = call_key(server, tool, principal, arguments_hash)
        return _one(await self._rows(_FIND_AWAITED, key, float(now)))

    async def proposal(self, proposal_id: str) -> Proposal | None:
        """Return a proposal by its id."""
        return _one(await self._rows(_FIND, pack(proposal_id)))

    async def proposals(self, states: Sequence[State] = (), limit: int = 100) -> Sequence[Proposal]:
        """Return the newest proposals in any of `states`."""
        wanted = [str(state) for state in dict.fromkeys(states or State)]
        wanted += wanted[:1] * (len(State) - len(wanted))
        return [to_proposal(row) for row in await self._rows(_NEWEST, limit, *wanted)]

    async def decide(
        self,
        proposal_id: str,
        state: State,
        *,
        operator: str,
        reason: str,
        now: float,
        expires_at: float,
    ) -> Proposal | None:
        """Approve or reject a proposal, where it is in a state for it."""
        if state not in (State.APPROVED, State.REJECTED):
            raise ValueError(f"an operator approves or rejects; {state} is neither")
        key, who, at = pack(proposal_id), pack(operator), float(now)

        def steps(again: bool) -> Steps[Proposal | None]:  # noqa: FBT001  as Database says
            rows = yield Query(_DECIDE, (key, str(state), who, pack(reason), at, float(expires_at)))
            if again and not rows:
                rows = yield Query(_FIND_DECIDED, (key, str(state), who, at))
            return _one(rows)

        return await self.database.write(steps)

    async def consume(self, commit: Commit) -> Consumed:
        """Consume a nonce and mark its proposal committed, together."""
        return await self.database.write(lambda _: _consume(commit))

    async def commit(self, nonce: str) -> Commit | None:
        """Return the commit that consumed a nonce."""
        rows = await self._rows(_FIND_COMMIT, pack(nonce))
        return to_commit(rows[0]) if rows else None

    async def resume(self, nonce: str, attempt_id: str, question: str) -> bool:
        """Let an attempt go on from `input_required`."""
        ours = (pack(nonce), pack(attempt_id))
        return await self._change(Query(_RESUME, (*ours, question)), Query(_RESUMED, ours))

    async def end(self, nonce: str, attempt_id: str, outcome: str, now: float, question: str | None = None) -> bool:
        """Keep how a commit ended."""
        ours = (pack(nonce), pack(attempt_id), outcome, float(now))
        return await self._change(Query(_END, (*ours, question)), Query(_ENDED, ours))

    async def baseline(self, server: str, tool: str) -> Baseline | None:
        """Return the baseline of a tool."""
        rows = await self._rows(_FIND_BASELINE, pack(server), pack(tool))
        return to_baseline(rows[0]) if rows else None

    async def baselines(self) -> Sequence[Baseline]:
        """Return every baseline."""
        return [to_baseline(row) for row in await self._rows(_BASELINES)]

    async def set_baseline(self, baseline: Baseline) -> None:
        """Keep a baseline in place of the one that was there."""
        await self._change(Query(_SET_BASELINE, baseline_row(baseline)))

    async def remove_baseline(self, server: str, tool: str) -> bool:
        """Forget a baseline."""
        return await self._change(Query(_REMOVE_BASELINE, (pack(server), pack(tool))))

    async def sweep(self, now: float, grace: float) -> int:
        """Mark what has expired, and delete what expired more than `grace` ago.

        By and by, so that no statement is so long that nothing else gets its turn.
        """
        await self._change(Query(_EXPIRE, (float(now),)))
        gone = 0
        for statement in (_SWEEP_COMMITS, _SWEEP_PROPOSALS):
            deleted = SWEEP_ROWS
            while deleted == SWEEP_ROWS:
                deleted = await self._delete(statement, now - grace)
                gone += deleted
        return gone

    async def close(self) -> None:
        """Let go of the database."""
        await self.database.close()

    async def _rows(self, sql: str, *values: object) -> Sequence[Row]:
        def steps() -> Steps[Sequence[Row]]:
            return (yield Query(sql, values))

        return await self.database.read(steps)

    async def _delete(self, sql: str, before: float) -> int:
        def steps(_: bool) -> Steps[int]:  # noqa: FBT001  as Database says
            return len((yield Query(sql, (float(before), SWEEP_ROWS))))

        return await self.database.write(steps)

    async def _change(self, change: Query, read_back: Query | None = None) -> bool:
        """Return whether `change` touched a row; `read_back` tells after a broken connection whether it did before."""

        def steps(again: bool) -> Steps[bool]:  # noqa: FBT001  as Database says
            rows = yield change
            if again and not rows and read_back is not None:
                rows = yield read_back
            return bool(rows)

        return await self.database.write(steps)


def _propose(proposal: Proposal, now: float) -> Steps[Proposal]:
    key = call_key(proposal.server, proposal.tool, proposal.principal, proposal.arguments_hash)
    waits = proposal.state in AWAITED
    row = (*proposal_row(proposal), key, waits)
    for _ in range(PROPOSE_TRIES):
        if waits:
            yield Query(_EXPIRE_CALL, (float(now), key))
        if (yield Query(_KEEP, row)):
            return proposal
        # It is there from before a connection broke, or another waits, or did until a moment ago.
        found = (yield Query(_FIND, (row[0],))) or (yield Query(_FIND_AWAITED, (key, float(now))))
        if found:
            return to_proposal(found[0])
    raise StoreUnavailableError(f"proposal {proposal.proposal_id!r} can be neither kept nor found")


def _consume(commit: Commit) -> Steps[Consumed]:
    row = commit_row(commit)
    if (yield Query(_MARK_COMMITTED, row[:2])):
        if (yield Query(_CONSUME, row)):
            return Consumed.OURS
        raise Undo(Consumed.REPLAY)  # consumed, whatever its proposal says: the nonce has the last word
    owner = yield Query(_OWNER, (row[1],))
    if not owner:
        return Consumed.UNKNOWN
    return Consumed.OURS if owner[0][0] == row[2] else Consumed.REPLAY


def _one(rows: Sequence[Row]) -> Proposal | None:
    return to_proposal(rows[0]) if rows else None
