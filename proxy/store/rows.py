"""How the values of two-phase execution look as rows. Pure.

Names and reasons may hold what came over the wire, so also what no database
takes as text: NUL and halves of surrogate pairs.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from proxy.core.proposals import Baseline, Commit, Proposal, State

if TYPE_CHECKING:
    from proxy.store.database import Row

PROPOSAL = (
    "proposal_id, server, tool, principal, arguments_hash, arguments, rule, policy_version, approval, state, nonce, "
    "created_at, expires_at, token_seconds, composite_score, signals, absent, reason, call_id, "
    "operator, operator_reason, operator_at"
)
COMMIT = "proposal_id, nonce, attempt_id, committed_at, expires_at, outcome, ended_at, attempts, question"
BASELINE = "server, tool, prompt_hash, set_at, set_by"

_MARK = "\x01"
_UNFIT = re.compile("^\x01|[\x00\ud800-\udfff]")


def pack(text: str) -> str:
    """Return `text` in a form that every database takes: almost always itself, and never that of another text."""
    return _MARK + json.dumps(text) if _UNFIT.search(text) else text


def unpack(text: str) -> str:
    """Return what was packed."""
    return str(json.loads(text[1:])) if text.startswith(_MARK) else text


def call_key(server: str, tool: str, principal: str, arguments_hash: str) -> str:
    """Return a short key for one exact call, however long its names are."""
    return hashlib.sha256(json.dumps([server, tool, principal, arguments_hash]).encode()).hexdigest()


def proposal_row(proposal: Proposal) -> tuple[Any, ...]:
    """Return a proposal in the order of PROPOSAL."""
    p = proposal
    return (
        *map(pack, (p.proposal_id, p.server, p.tool, p.principal, p.arguments_hash)),
        _json(p.arguments),
        *map(pack, (p.rule, p.policy_version, p.approval, p.state, p.nonce)),
        float(p.created_at),
        float(p.expires_at),
        float(p.token_seconds),
        p.composite_score,
        _json(dict(p.signals)),
        _json(dict(p.absent)),
        *map(_pack, (p.reason, p.call_id, p.operator, p.operator_reason)),
        p.operator_at,
    )


def to_proposal(row: Row) -> Proposal:
    """Read a row in the order of PROPOSAL."""
    return Proposal(
        proposal_id=unpack(row[0]),
        server=unpack(row[1]),
        tool=unpack(row[2]),
        principal=unpack(row[3]),
        arguments_hash=unpack(row[4]),
        arguments=json.loads(row[5]),
        rule=unpack(row[6]),
        policy_version=unpack(row[7]),
        approval=row[8],
        state=State(row[9]),
        nonce=unpack(row[10]),
        created_at=row[11],
        expires_at=row[12],
        token_seconds=row[13],
        composite_score=row[14],
        signals=json.loads(row[15]),
        absent=json.loads(row[16]),
        reason=_unpack(row[17]),
        call_id=_unpack(row[18]),
        operator=_unpack(row[19]),
        operator_reason=_unpack(row[20]),
        operator_at=row[21],
    )


def commit_row(commit: Commit) -> tuple[Any, ...]:
    """Return a commit in the order of COMMIT."""
    c = commit
    ids = map(pack, (c.proposal_id, c.nonce, c.attempt_id))
    return (*ids, float(c.at), float(c.expires_at), c.outcome, c.ended_at, c.attempts, c.question)


def to_commit(row: Row) -> Commit:
    """Read a row in the order of COMMIT."""
    return Commit(
        proposal_id=unpack(row[0]),
        nonce=unpack(row[1]),
        attempt_id=unpack(row[2]),
        at=row[3],
        expires_at=row[4],
        outcome=row[5],
        ended_at=row[6],
        attempts=row[7],
        question=row[8],
    )


def baseline_row(baseline: Baseline) -> tuple[Any, ...]:
    """Return a baseline in the order of BASELINE."""
    b = baseline
    return (*map(pack, (b.server, b.tool, b.prompt_hash)), float(b.set_at), pack(b.set_by))


def to_baseline(row: Row) -> Baseline:
    """Read a row in the order of BASELINE."""
    return Baseline(unpack(row[0]), unpack(row[1]), unpack(row[2]), row[3], unpack(row[4]))


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False)  # in ASCII: what is no text stays an escape


def _pack(text: str | None) -> str | None:
    return None if text is None else pack(text)


def _unpack(text: str | None) -> str | None:
    return None if text is None else unpack(text)
