"""The frozen values of two-phase execution, and the Protocol of the store that holds them.

Pure: standard library only, no I/O. A proposal is a plan for one exact call; a
commit is the one time that it is carried out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.core.approvals import ApprovedCall, GivenApproval, StandingStore
    from proxy.core.model import Json

type Approval = Literal["auto", "human"]
type How = Literal["propose", "hold", "elicit", "task"]
"""How an agent waits for people: it proposes and commits, its call is held, it is sent to a page, or it gets a task."""
type Own = Literal["allow", "refuse"]


class State(StrEnum):
    """Where a proposal stands.

    proposed (by itself good enough) or pending (waits for an operator) →
    approved | rejected | expired → committed. Blocked is an end.
    """

    PROPOSED = "proposed"
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    BLOCKED = "blocked"
    COMMITTED = "committed"


COMMITTABLE = frozenset({State.PROPOSED, State.APPROVED})
"""A token of a proposal in one of these states may be used."""
AWAITED = frozenset({State.PENDING, State.APPROVED, State.REJECTED})
"""Proposing the same again finds a proposal in one of these states, instead of making another."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the two_phase rules that match a call ask for, put together: the strictest of each."""

    rule: str
    approval: Approval = "auto"
    review: bool = False
    """A proposal that scores too high waits for an operator instead of ending as a draft."""
    block_threshold: float = 0.45
    weights: Mapping[str, float] = field(
        default_factory=lambda: {"output_instability": 0.5, "numeric_variance": 0.3, "prompt_drift": 0.2}
    )
    token_seconds: float = 300.0
    """How long a commit token lives."""
    approval_seconds: float = 3600.0
    """How long a proposal waits for an operator."""
    how: How = "propose"
    people: int = 1
    """How many operators have to approve."""
    own: Own = "allow"
    """`refuse`: an operator who runs the agent may not approve."""
    hold_seconds: float | None = None
    """How long a call is held; None: as the settings say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A plan for one exact call, scored. `arguments` are masked; the hash is over the real ones.

    Every token of a proposal carries its one `nonce`, so that however many are
    given out, one commit is all there is.
    """

    proposal_id: str
    server: str
    tool: str
    principal: str
    arguments_hash: str
    arguments: Json
    rule: str
    policy_version: str
    approval: Approval
    state: State
    nonce: str
    created_at: float
    expires_at: float
    token_seconds: float = 300.0
    composite_score: float | None = None
    signals: Mapping[str, float] = field(default_factory=dict[str, float])
    absent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Signals that are not there, and why."""
    reason: str | None = None
    """Why it was blocked or sent to review: `low_integrity` or `no_signals`."""
    call_id: str | None = None
    """The audit id of the call that proposed it."""
    operator: str | None = None
    operator_reason: str | None = None
    operator_at: float | None = None
    people: int = 1
    """How many operators have to approve it."""
    approvals: int = 0
    """How many have."""
    own: Own = "allow"
    how: How = "propose"
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Each argument's type and a keyed hash of its value, to compare calls with a standing approval."""
    standing_id: str | None = None
    """The standing approval that let it through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The one execution of a proposal; `attempt_id` names the call that made it.

    `outcome` is None from the moment the nonce is consumed until it is known how
    the call ended: done, tool_error, error, input_required, task, unknown, not_forwarded.
    """

    proposal_id: str
    nonce: str
    attempt_id: str
    """The audit id of the call that commits."""
    at: float
    expires_at: float
    """When the nonce's token expires; the row is stored longer."""
    outcome: str | None = None
    ended_at: float | None = None
    question: str | None = None
    """Of input_required: the hash of the state that the client has to send back with its answer."""
    attempts: int = 1
    """How often the call was sent: once, and once for each answer to an input_required."""
    token_id: str | None = None
    """The token that was used; None where the call needed none."""


@dataclass(frozen=True, slots=True)
class RunningCommit:
    """A commit under way: whose nonce was used up, and by which attempt."""

    nonce: str
    attempt_id: str
    proposal_id: str
    task_id: str | None = None
    """The task of the proxy's own whose result this is."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The prompt that a tool is meant to be called under, as the hash of its normal form.

    An empty `server` speaks of every server.
    """

    server: str
    tool: str
    prompt_hash: str
    set_at: float
    set_by: str = ""


class Consumed(StrEnum):
    """What came of trying to consume a nonce."""

    OURS = "ours"
    REPLAY = "replay"
    UNKNOWN = "unknown"
    """The proposal is not there any more, or not in a state to be committed."""


class ProposalStore(Protocol):
    """Keeps proposals, commits with their nonces, and baselines; shared by every replica.

    Every method raises StoreUnavailableError where the store cannot be reached
    or does not answer in time, and nothing else that a caller should expect.
    Times are seconds since the epoch and come from the caller.
    """

    @property
    def standing(self) -> StandingStore:
        """The approvals that stand for calls to come."""
        ...

    async def propose(self, proposal: Proposal, now: float) -> Proposal:
        """Store `proposal` and return it.

        Where it is PENDING and another for the same server, tool, principal and
        arguments_hash is AWAITED and has not expired, return that one instead and
        store nothing: however many propose at once, one proposal waits.
        """
        ...

    async def awaited(self, server: str, tool: str, principal: str, arguments_hash: str, now: float) -> Proposal | None:
        """Return the AWAITED proposal for exactly this call that has not expired, if there is one."""
        ...

    async def asked(
        self, server: str, tool: str, principal: str, arguments_hash: str, question: str
    ) -> Proposal | None:
        """Return the proposal of this call that was carried out and answered with this question."""
        ...

    async def proposal(self, proposal_id: str) -> Proposal | None:
        """Return a proposal by its id, in the state it was last put in."""
        ...

    async def proposals(self, states: Sequence[State] = (), limit: int = 100) -> Sequence[Proposal]:
        """Return the newest proposals in any of `states` (none given: in any state), newest first."""
        ...

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
        """Count an operator's approval of a PENDING proposal that has not expired, or reject it or an APPROVED one.

        It is APPROVED once as many as it needs have approved, and only then has `expires_at`. Gives the proposal as
        it is now; None where it is not there, not in a state for it, or approved by this operator before.
        """
        ...

    async def approvals(self, proposal_id: str) -> Sequence[GivenApproval]:
        """Return who has approved a proposal, in order."""
        ...

    async def approved_call(self, server: str, tool: str) -> ApprovedCall | None:
        """Return the last call of a tool that people approved."""
        ...

    async def consume(self, commit: Commit) -> Consumed:
        """Consume the nonce of `commit`, once among all replicas, and mark the proposal COMMITTED, together.

        OURS again where this same `attempt_id` consumed it before, so that a
        caller whose connection broke may ask again. A proposal that is not
        COMMITTABLE gives REPLAY where its nonce is consumed, else UNKNOWN.
        """
        ...

    async def commit(self, nonce: str) -> Commit | None:
        """Return the commit that consumed a nonce, if any did."""
        ...

    async def resume(self, nonce: str, attempt_id: str, question: str) -> bool:
        """Let an attempt go on from `input_required`, where this was the question: once for each time it is reached.

        Sets the outcome back to None, the attempt_id to this one, and counts the attempt.
        """
        ...

    async def end(self, nonce: str, attempt_id: str, outcome: str, now: float, question: str | None = None) -> bool:
        """Store how a commit ended, where `attempt_id` is its owner and it has not ended; return whether it did."""
        ...

    async def baseline(self, server: str, tool: str) -> Baseline | None:
        """Return the baseline of a tool: this server's own before that of every server."""
        ...

    async def baselines(self) -> Sequence[Baseline]:
        """Return every baseline, by server and tool."""
        ...

    async def set_baseline(self, baseline: Baseline) -> None:
        """Store a baseline in place of the one that was there."""
        ...

    async def remove_baseline(self, server: str, tool: str) -> bool:
        """Forget a baseline; return whether there was one."""
        ...

    async def sweep(self, now: float, grace: float) -> int:
        """Mark what has expired EXPIRED, and delete proposals and commits that expired more than `grace` ago.

        A nonce outlives its token by `grace`, so that no clock within bounds lets it be used again.
        Commits whose outcome is unknown stay. Returns how many rows were deleted.
        """
        ...

    async def close(self) -> None:
        """Close files and connections."""
        ...
