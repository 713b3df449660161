"""Proposing: what a caller gives with a proposal, what is stored of it, and what it is answered. Pure."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxy.core.ids import new_id
from proxy.core.proposals import Proposal, State, Terms
from proxy.errors import PhaseError
from proxy.twophase.hashing import NotExactError, hash_arguments
from proxy.twophase.listing import EXTRA
from proxy.twophase.tokens import KeyRing, Token, issue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.core.approvals import StandingApproval
    from proxy.core.model import Call, Json, JsonObject
    from proxy.twophase.scoring import Score

MAX_TEXT: Final = 64 << 10  # characters of a prompt or of one candidate output that are taken
CANDIDATES: Final = 2
MAX_REASON_SHOWN: Final = 1000
ASK_AGAIN_SECONDS: Final = 60.0
_NONCE_BYTES: Final = 24


class Sampler(Protocol):
    """Drafts what a call might come to."""

    async def sample(self, tool: str, description: str | None, arguments: Json, prompt: str | None) -> tuple[str, str]:
        """Return two drafts, made independently. Raises SamplerError where there are none."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a caller gives beside the arguments, for the proposal to be scored by."""

    prompt: str | None = None
    candidates: tuple[str, ...] = ()


NO_EVIDENCE: Final = Evidence()


@dataclass(frozen=True, slots=True)
class Plan:
    """A call that is proposed, with its terms and evidence; `arguments` and `prompt` are masked, fit to store."""

    call: Call
    terms: Terms
    evidence: Evidence
    arguments: Json
    prompt: str | None
    description: str | None
    policy_version: str
    call_id: str
    parts: Mapping[str, str] = field(default_factory=dict[str, str])


def split_evidence(arguments: JsonObject | None) -> tuple[JsonObject | None, Evidence]:
    """Return the tool's own arguments, and what is for Interlock. Raises PhaseError `bad_proposal` for a wrong form."""
    if arguments is None or EXTRA not in arguments:
        return arguments, NO_EVIDENCE
    own = {name: value for name, value in arguments.items() if name != EXTRA}
    extra = arguments[EXTRA]
    if not isinstance(extra, dict):
        kind = "null" if extra is None else type(extra).__name__
        raise PhaseError("bad_proposal", f"{EXTRA} is {kind}, not an object")
    # A misspelt name would be evidence that is silently not weighed, so it is refused.
    if odd := sorted(set(extra) - {"prompt", "candidate_outputs"}):
        raise PhaseError("bad_proposal", f"{EXTRA} has {odd[0][:60]!r} in it; it takes prompt and candidate_outputs")
    prompt = extra.get("prompt")
    if prompt is not None and not isinstance(prompt, str):
        raise PhaseError("bad_proposal", f"{EXTRA}.prompt is {type(prompt).__name__}, not a string")
    taken = _bounded(prompt, "prompt") if prompt else None
    return own, Evidence(taken, _candidates(extra.get("candidate_outputs")))


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


def exact_hash(arguments: JsonObject | None) -> str:
    """Return the hash of a call's arguments. Raises PhaseError `inexact_value` where there is none."""
    try:
        return hash_arguments(arguments)
    except NotExactError as error:
        raise PhaseError("inexact_value", str(error)) from error


def draft(plan: Plan, digest: str, made: Score, proposal_id: str, now: float) -> Proposal:
    """Return a new proposal of `plan`, whose arguments hash to `digest` and which scores so."""
    terms, state = plan.terms, _first_state(made, plan.terms)
    waits = state is State.PENDING
    return Proposal(
        proposal_id=proposal_id,
        server=plan.call.server,
        tool=plan.call.tool or "",
        principal=plan.call.agent,
        arguments_hash=digest,
        arguments=plan.arguments,
        rule=terms.rule,
        policy_version=plan.policy_version,
        approval="human" if waits else "auto",
        state=state,
        # One nonce for each proposal, in every token of it: however many tokens are issued, one commit consumes it.
        nonce=secrets.token_urlsafe(_NONCE_BYTES),
        created_at=now,
        expires_at=now + (terms.approval_seconds if waits else terms.token_seconds),
        token_seconds=terms.token_seconds,
        composite_score=made.composite,
        signals=made.signals,
        absent=made.absent,
        reason=made.reason,
        call_id=plan.call_id,
        people=terms.people,
        own=terms.own,
        how=terms.how,
        parts=plan.parts if waits else {},
    )


def approve_standing(proposal: Proposal, standing: StandingApproval, now: float) -> Proposal:
    """Return a proposal that would wait, approved by a standing approval."""
    return replace(
        proposal,
        state=State.APPROVED,
        approvals=1,
        operator=standing.operator,
        operator_reason=f"standing approval {standing.standing_id}: {standing.reason}"[:MAX_REASON_SHOWN],
        operator_at=now,
        standing_id=standing.standing_id,
    )


def _first_state(made: Score, terms: Terms) -> State:
    """Return the state of a new proposal."""
    # One without signals waits where a person decides anyway; one that scores badly does only if the rule says review.
    if made.blocked:
        unscored = made.reason == "no_signals" and terms.approval == "human"
        return State.PENDING if terms.review or unscored else State.BLOCKED
    return State.PENDING if terms.approval == "human" else State.PROPOSED


def answer_proposal(
    proposal: Proposal, arguments: JsonObject, commit_name: str, ring: KeyRing, now: float, page: str | None = None
) -> JsonObject:
    """Return the tool result that answers a proposal; with a token where it may be committed.

    `page` is where operators decide on it. It opens for nobody without an operator's own login.
    """
    scored = {"composite_score": proposal.composite_score, "signals": dict(proposal.signals)}
    answer: JsonObject
    if proposal.state is State.BLOCKED:
        # The arguments are the caller's own, so it gets them back as they came, not masked.
        plan = {"tool": proposal.tool, "arguments": arguments}
        answer = {"status": "blocked", "action": "create_draft", "reason": proposal.reason, "draft": plan}
    elif proposal.state is State.REJECTED:
        answer = {"status": "rejected", "proposal_id": proposal.proposal_id, "reason": proposal.operator_reason or ""}
    elif proposal.state is State.PENDING:
        notes = waiting_notes(proposal, page, now)
        answer = {"status": "pending", "proposal_id": proposal.proposal_id, **notes["fields"]}
        return _result({**answer, **scored}, f"{_ADVICE['pending']} Tell the user: {notes['user']}")
    else:
        token = make_token(proposal, now)
        answer = {
            "status": "allowed",
            "proposal_id": proposal.proposal_id,
            "commit_token": issue(token, ring),
            "expires_at": timestamp(token.expires_at),
        }
    advice = _ADVICE[answer["status"]].format(commit=commit_name, reason=proposal.reason)
    return _result({**answer, **scored}, advice)


def answer_not_required(tool: str) -> JsonObject:
    """Return the tool result that answers a proposal of a call that may be made directly."""
    return _result({"status": "not_required", "tool": tool}, _ADVICE["not_required"].format(tool=tool))


def waiting_notes(proposal: Proposal, page: str | None, now: float) -> JsonObject:
    """Return what is said of a proposal that waits: `fields` for a program, and a sentence for the `user`."""
    # A full minute, since people read it.
    after = min((now + ASK_AGAIN_SECONDS) // 60 * 60, proposal.expires_at)
    fields: JsonObject = {"expires_at": timestamp(proposal.expires_at), "ask_again_after": timestamp(after)}
    if proposal.people > 1:
        fields |= {"approvals": proposal.approvals, "people": proposal.people}
    who = "an operator" if proposal.people == 1 else f"{proposal.people - proposal.approvals} more operators"
    user = f"{proposal.tool} is waiting for {who}; ask again after {timestamp(after)[11:16]} UTC"
    if page is not None:
        fields["page"] = page
        user += f", or open {page}"
    return {"fields": fields, "user": f"{user}."}


def make_token(proposal: Proposal, now: float) -> Token:
    """Return a token of a proposal that may be committed."""
    return Token(
        token_id=new_id(),
        proposal_id=proposal.proposal_id,
        tool_name=proposal.tool,
        tool_args_hash=proposal.arguments_hash,
        issued_at=now,
        # An approval ends with its proposal, however late the token for it is issued.
        expires_at=min(now + proposal.token_seconds, proposal.expires_at),
        nonce=proposal.nonce,
        composite_score=proposal.composite_score,
        server=proposal.server,
        principal=proposal.principal,
    )


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
        **({"standing_id": proposal.standing_id, "operator": proposal.operator} if proposal.standing_id else {}),
    }


def timestamp(seconds: float) -> str:
    """Return a time as people and models read it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _result(answer: JsonObject, advice: str) -> JsonObject:
    """Return the tool result for an answer: the answer itself as text and as a structure, and what to do next."""
    return {
        "content": [{"type": "text", "text": json.dumps(answer)}, {"type": "text", "text": advice}],
        "structuredContent": answer,
        "isError": False,
        "resultType": "complete",
    }


_ADVICE: Final = {
    "not_required": "Nothing has been executed. These arguments need no proposal: call {tool!r} with them directly.",
    "allowed": "Nothing has been executed yet. To run it, call {commit!r} with exactly the same arguments, "
    "and with this proposal_id and commit_token, before expires_at. The token works once.",
    "pending": "Nothing has been executed. A person has to approve this proposal: tell the user, and propose the same "
    "again after ask_again_after; once it is approved, the answer has the commit_token.",
    "rejected": "Nothing has been executed. A person has rejected this proposal: do not try again, tell the user.",
    "blocked": "Nothing has been executed ({reason}). Show the draft to the user. Where the reason is no_signals, "
    "propose again with _interlock: the prompt you act on, and two candidate_outputs.",
}
