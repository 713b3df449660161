"""A ProposalReview among fakes, and proposals for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.core.approvals import ApprovedCall, GivenApproval, Operator, Role, StandingApproval
from proxy.core.model import AuditEvent
from proxy.core.proposals import Commit, Proposal, State
from proxy.twophase.review import ProposalReview

NOW = 1_000_000.0
ALICE = Operator("alice")
BOB = Operator("bob")
VERA = Operator("vera", Role.VIEWER)


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
    given: dict[str, list[GivenApproval]] = field(default_factory=dict)
    last: ApprovedCall | None = None
    stands: dict[str, StandingApproval] = field(default_factory=dict)

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
        if state is State.APPROVED:
            self.given.setdefault(proposal_id, []).append(GivenApproval(operator, reason, now))
            known = replace(known, approvals=known.approvals + 1)
            if known.approvals < known.people:
                state, expires_at = State.PENDING, known.expires_at
        self.kept[proposal_id] = replace(
            known, state=state, operator=operator, operator_reason=reason, operator_at=now, expires_at=expires_at
        )
        return self.kept[proposal_id]

    async def approvals(self, proposal_id: str) -> Sequence[GivenApproval]:
        return self.given.get(proposal_id, [])

    async def approved_call(self, server: str, tool: str) -> ApprovedCall | None:
        return self.last

    @property
    def standing(self) -> ReviewFixture:
        return self

    async def add(self, standing: StandingApproval) -> None:
        self._step("stand")
        self.stands[standing.standing_id] = standing

    async def newest(self, limit: int = 100) -> Sequence[StandingApproval]:
        return list(self.stands.values())[:limit]

    async def find(self, standing_id: str) -> StandingApproval | None:
        return self.stands.get(standing_id)

    async def revoke(self, standing_id: str, operator: str, now: float) -> StandingApproval | None:
        self._step("revoke")
        known = self.stands[standing_id]
        if known.revoked_at is not None:
            return None
        self.stands[standing_id] = replace(known, revoked_by=operator, revoked_at=now)
        return self.stands[standing_id]

    async def record(self, event: AuditEvent) -> None:
        self._step("record")
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self._step("record_later")
        self.events.append(event)
