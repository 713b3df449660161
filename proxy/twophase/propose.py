"""Proposing: a plan is hashed, scored and kept, and answered. Nothing is executed.

No I/O of its own: clock, store and sampler are given.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxy.core.proposals import Proposal, State
from proxy.errors import PhaseError, SamplerError
from proxy.twophase.hashing import NotExactError, hash_arguments
from proxy.twophase.listing import EXTRA
from proxy.twophase.scoring import Score, score
from proxy.twophase.tokens import KeyRing, Token, issue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.model import Call, Json, JsonObject
    from proxy.core.proposals import ProposalStore, Terms

MAX_TEXT: Final = 64 << 10
"""Characters of a prompt or of one candidate output that are taken."""
CANDIDATES: Final = 2
_NONCE_BYTES: Final = 24


class Sampler(Protocol):
    """Drafts what a call might come to."""

    async def sample(self, tool: str, description: str | None, arguments: Json, prompt: str | None) -> tuple[str, str]:
        """Return two drafts, made independently. Raises SamplerError where there are none."""
        ...


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a caller gives beside the arguments, for the proposal to be scored by."""

    prompt: str | None = None
    candidates: tuple[str, ...] = ()


NO_EVIDENCE: Final = Evidence()


@dataclass(frozen=True, slots=True)
class Plan:
    """A call that is proposed: on what terms, with what evidence.

    `arguments` and `prompt` are masked: these may be kept, and shown to a sampler.
    """

    call: Call
    terms: Terms
    evidence: Evidence
    arguments: Json
    prompt: str | None
    description: str | None
    policy_version: str
    call_id: str


def split_evidence(arguments: JsonObject | None) -> tuple[JsonObject | None, Evidence]:
    """Part the tool's own arguments from what is for Interlock.

    Raises PhaseError `bad_proposal` where that is not of the form the tool's schema says.
    """
    if arguments is None or EXTRA not in arguments:
        return arguments, NO_EVIDENCE
    own = {name: value for name, value in arguments.items() if name != EXTRA}
    extra = arguments[EXTRA]
    if not isinstance(extra, dict):
        raise PhaseError("bad_proposal", f"{EXTRA} is {_kind(extra)}, not an object")
    if odd := sorted(set(extra) - {"prompt", "candidate_outputs"}):
        raise PhaseError("bad_proposal", f"{EXTRA} has {odd[0][:60]!r} in it; it takes prompt and candidate_outputs")
    return own, Evidence(_prompt(extra.get("prompt")), _candidates(extra.get("candidate_outputs")))


def _prompt(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise PhaseError("bad_proposal", f"{EXTRA}.prompt is {_kind(value)}, not a string")
    return _bounded(value, "prompt") if value else None


def _candidates(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) != CANDIDATES or not all(isinstance(item, str) for item in value):
        raise PhaseError("bad_proposal", f"{EXTRA}.candidate_outputs must be a list of two strings")
    if not all(item.strip() for item in value):
        raise PhaseError("bad_proposal", f"{EXTRA}.candidate_outputs has an empty one, which tells nothing")
    return tuple(_bounded(item, "candidate_outputs") for item in value)


def _bounded(text: str, name: str) -> str:
    if len(text) > MAX_TEXT:
        raise PhaseError("proposal_too_large", f"{EXTRA}.{name} has more than {MAX_TEXT} characters")
    return text


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


class Proposer:
    """Makes proposals of plans."""

    def __init__(
        self,
        *,
        store: ProposalStore,
        ring: Callable[[], KeyRing],
        new_id: Callable[[], str],
        clock: Callable[[], float],
        sampler: Sampler | None = None,
    ) -> None:
        self._store = store
        self._ring = ring
        self._new_id = new_id
        self._clock = clock
        self._sampler = sampler

    async def propose(self, plan: Plan) -> tuple[Proposal, JsonObject]:
        """Keep a proposal of `plan`, or find the one that waits; return it and what to answer.

        Raises PhaseError where the arguments cannot be hashed, StoreUnavailableError where the store is away.
        """
        digest = exact_hash(plan.call.arguments)
        proposal = await self._awaited(plan, digest)
        if proposal is None:
            proposal = await self._store.propose(await self._draft(plan, digest), self._clock())
        return proposal, self._answer(proposal, plan.call.arguments or {})

    async def _awaited(self, plan: Plan, digest: str) -> Proposal | None:
        """Return the proposal of the same call that an operator has decided on, or is to decide on."""
        call, terms = plan.call, plan.terms
        if terms.approval != "human" and not terms.review:
            return None
        return await self._store.awaited(call.server, call.tool or "", call.agent, digest, self._clock())

    async def _draft(self, plan: Plan, digest: str) -> Proposal:
        made, terms, now = await self._score(plan), plan.terms, self._clock()
        state = _first_state(made, terms)
        waits = state is State.PENDING
        return Proposal(
            proposal_id=self._new_id(),
            server=plan.call.server,
            tool=plan.call.tool or "",
            principal=plan.call.agent,
            arguments_hash=digest,
            arguments=plan.arguments,
            rule=terms.rule,
            policy_version=plan.policy_version,
            approval="human" if waits else "auto",
            state=state,
            nonce=secrets.token_urlsafe(_NONCE_BYTES),
            created_at=now,
            expires_at=now + (terms.approval_seconds if waits else terms.token_seconds),
            token_seconds=terms.token_seconds,
            composite_score=made.composite,
            signals=made.signals,
            absent=made.absent,
            reason=made.reason,
            call_id=plan.call_id,
        )

    async def _score(self, plan: Plan) -> Score:
        call, evidence = plan.call, plan.evidence
        baseline = await self._store.baseline(call.server, call.tool or "")
        candidates, why = await self._candidates(plan)
        return score(
            candidates,
            evidence.prompt,
            baseline.prompt_hash if baseline else None,
            plan.terms.weights,
            plan.terms.block_threshold,
            no_candidates=why,
        )

    async def _candidates(self, plan: Plan) -> tuple[Sequence[str] | None, str]:
        """Return two outputs to compare, or none and why."""
        if plan.evidence.candidates:
            return plan.evidence.candidates, ""
        if self._sampler is None:
            return None, "no candidate outputs were given"
        try:
            tool = plan.call.tool or ""
            return await self._sampler.sample(tool, plan.description, plan.arguments, plan.prompt), ""
        except SamplerError as error:
            return None, str(error)

    def _answer(self, proposal: Proposal, arguments: JsonObject) -> JsonObject:
        scored = {"composite_score": proposal.composite_score, "signals": dict(proposal.signals)}
        if proposal.state is State.BLOCKED:
            draft = {"tool": proposal.tool, "arguments": arguments}
            return {
                "status": "blocked",
                "action": "create_draft",
                "reason": proposal.reason,
                "draft": draft,
                **scored,
            }
        if proposal.state is State.REJECTED:
            said = {"reason": proposal.operator_reason or ""}
            return {"status": "rejected", "proposal_id": proposal.proposal_id, **said, **scored}
        if proposal.state is State.PENDING:
            waits = {"proposal_id": proposal.proposal_id, "expires_at": timestamp(proposal.expires_at)}
            return {"status": "pending", **waits, **scored}
        token = self._token(proposal)
        return {
            "status": "allowed",
            "proposal_id": proposal.proposal_id,
            "commit_token": issue(token, self._ring()),
            "expires_at": timestamp(token.expires_at),
            **scored,
        }

    def _token(self, proposal: Proposal) -> Token:
        now = self._clock()
        return Token(
            token_id=self._new_id(),
            proposal_id=proposal.proposal_id,
            tool_name=proposal.tool,
            tool_args_hash=proposal.arguments_hash,
            issued_at=now,
            expires_at=min(now + proposal.token_seconds, proposal.expires_at),
            nonce=proposal.nonce,
            composite_score=proposal.composite_score,
            server=proposal.server,
            principal=proposal.principal,
        )


def exact_hash(arguments: JsonObject | None) -> str:
    """Return the hash of a call's arguments. Raises PhaseError `inexact_value` where there is none."""
    try:
        return hash_arguments(arguments)
    except NotExactError as error:
        raise PhaseError("inexact_value", str(error)) from error


def _first_state(made: Score, terms: Terms) -> State:
    """Say where a new proposal stands.

    Where a person decides anyway, a proposal that nothing speaks for or against
    waits for that person; one that scores badly does so only if the rule says review.
    """
    if made.blocked:
        unscored = made.reason == "no_signals" and terms.approval == "human"
        return State.PENDING if terms.review or unscored else State.BLOCKED
    return State.PENDING if terms.approval == "human" else State.PROPOSED


def describe(proposal: Proposal) -> JsonObject:
    """Return what an event says of a proposal."""
    return {
        "proposal_id": proposal.proposal_id,
        "state": str(proposal.state),
        "arguments_hash": proposal.arguments_hash,
        "composite_score": proposal.composite_score,
        "signals": dict(proposal.signals),
        "absent": dict(proposal.absent),
        "why": proposal.reason,
        "expires_at": proposal.expires_at,
    }


def timestamp(seconds: float) -> str:
    """Spell a time for people and models."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
