"""A ProposalReview among fakes, and proposals for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.core.model import AuditEvent
from proxy.core.proposals import Commit, Proposal, State
from proxy.twophase.review import ProposalReview

NOW = 1_000_000.0


def new_proposal(proposal_id: str = "01890000-0000-7000-8000-00000000000a", **fields: Any) -> Proposal:
    """Return a proposal to transfer funds that waits for an operator."""
    given: dict[str, Any] = {
        "server": "bank.example.com",
        "tool": "transfer_funds",
        "principal": "bot",
        "arguments_hash": "a" * 64,
        "arguments": {"amount": 100, "note": "***"},
        "rule": "payments",
        "policy_version": "v1",
        "approval": "human",
        "state": State.PENDING,
        "nonce": f"nonce-{proposal_id}",
        "created_at": NOW - 60,
        "expires_at": NOW + 600,
        "composite_score": 0.2,
        "signals": {"output_instability": 0.2},
        "absent": {"prompt_drift": "no_baseline"},
        "call_id": "call-1",
    }
    return Proposal(proposal_id=proposal_id, **(given | fields))


@dataclass
class ReviewFixture:
    """A review whose store and sink note what happens, in order, and fail on demand."""

    commits: dict[str, Commit] = field(default_factory=dict)
    kept: dict[str, Proposal] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    events: list[AuditEvent] = field(default_factory=list)
    fail: dict[str, BaseException] = field(default_factory=dict)
    now: float = NOW

    def __post_init__(self) -> None:
        self.review = ProposalReview(self, self, lambda: self.now)  # type: ignore[arg-type]

    def lay(self, *proposals: Proposal) -> None:
        self.kept |= {proposal.proposal_id: proposal for proposal in proposals}

    def _step(self, name: str) -> None:
        self.order.append(name)
        if name in self.fail:
            raise self.fail[name]

    async def proposal(self, proposal_id: str) -> Proposal | None:
        self._step("proposal")
        return self.kept.get(proposal_id)

    async def proposals(self, states: Sequence[State] = (), limit: int = 100) -> Sequence[Proposal]:
        self._step("proposals")
        newest = sorted(self.kept.values(), key=lambda one: -one.created_at)
        return [one for one in newest if not states or one.state in states][:limit]

    async def commit(self, nonce: str) -> Commit | None:
        self._step("commit")
        return self.commits.get(nonce)

    async def decide(
        self, proposal_id: str, state: State, *, operator: str, reason: str, now: float, expires_at: float
    ) -> Proposal | None:
        self._step("decide")
        known = self.kept[proposal_id]
        movable = {State.PENDING} if state is State.APPROVED else {State.PENDING, State.APPROVED}
        if known.state not in movable or known.expires_at <= now:
            return None
        self.kept[proposal_id] = replace(
            known, state=state, operator=operator, operator_reason=reason, operator_at=now, expires_at=expires_at
        )
        return self.kept[proposal_id]

    async def record(self, event: AuditEvent) -> None:
        self._step("record")
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self._step("record_later")
        self.events.append(event)
