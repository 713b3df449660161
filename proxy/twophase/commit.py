"""Committing: a token is checked against the very call it came with, and works once.

No I/O of its own: clock and store are given.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.core.proposals import COMMITTABLE, Commit, Consumed, Proposal, State
from proxy.errors import PhaseError
from proxy.twophase.hashing import NotExactError, hash_arguments
from proxy.twophase.listing import COMMIT_TOKEN, EXTRA, PROPOSAL_ID
from proxy.twophase.tokens import BadTokenError, KeyRing, Token, check_time, read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxy.core.model import Call, JsonObject
    from proxy.core.proposals import ProposalStore, Terms

INPUT_REQUIRED: Final = "input_required"
# How long a continued call waits for the outcome of its first part to be known.
_WAITS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a commit presents; empty strings where it presents nothing.

    `question` is the hash of what the client answers to, where the server asked something of it (input_required).
    """

    proposal_id: str
    token: str
    question: str | None = None


NO_TICKET: Final = Ticket("", "")


@dataclass(frozen=True, slots=True)
class Checked:
    """A commit whose token is good for the call it came with; its nonce is not consumed yet."""

    token: Token
    proposal: Proposal
    begun: Commit | None = None
    """The commit that this one goes on with."""
    question: str | None = None
    """The hash of what it answers to."""


def split_ticket(arguments: JsonObject | None, *, question: str | None) -> tuple[JsonObject | None, Ticket]:
    """Part the tool's own arguments from the token fields, which may stand inside `_interlock` too.

    An `_interlock` without them is what the proposal was made with: "the same arguments" to some models.
    """
    given = arguments or {}
    extra = given.get(EXTRA)
    if isinstance(extra, dict) and not {PROPOSAL_ID, COMMIT_TOKEN}.isdisjoint(extra):
        own = {name: value for name, value in given.items() if name != EXTRA}
        return own, _ticket(extra, question=question)
    own = {name: value for name, value in given.items() if name not in (PROPOSAL_ID, COMMIT_TOKEN, EXTRA)}
    return own, _ticket(given, question=question)


def _ticket(fields: JsonObject, *, question: str | None) -> Ticket:
    proposal_id, token = fields.get(PROPOSAL_ID), fields.get(COMMIT_TOKEN)
    return Ticket(
        proposal_id if isinstance(proposal_id, str) else "", token if isinstance(token, str) else "", question
    )


def hash_question(state: object) -> str:
    """Return the hash of the state that a server gives out with a question, and gets back with the answer."""
    return hashlib.sha256(state.encode("utf-8", "surrogatepass") if isinstance(state, str) else b"").hexdigest()


class Committer:
    """Checks commits, in one fixed order, and lets each proposal be carried out once."""

    def __init__(
        self,
        *,
        store: ProposalStore,
        ring: Callable[[], KeyRing],
        clock: Callable[[], float],
        wait: Callable[[float], Awaitable[None]],
    ) -> None:
        self._store = store
        self._ring = ring
        self._clock = clock
        self._wait = wait

    async def check(self, call: Call, ticket: Ticket) -> Checked:
        """Check a token against its call; nothing is used up.

        Raises PhaseError with the first of these that holds: `bad_signature`, `expired`,
        `unknown_proposal`, `args_hash_mismatch`; and StoreUnavailableError.
        """
        begun = None
        try:
            token = read(ticket.token, self._ring())
            begun = await self._store.commit(token.nonce) if ticket.question is not None else None
            if begun is None:
                check_time(token, self._clock())
        except BadTokenError as error:
            raise PhaseError(error.reason, error.detail) from error
        proposal = await self._proposal(token, ticket)
        _check_call(token, proposal, call)
        if ticket.question is not None and begun is None:
            raise PhaseError("bad_proposal", "it answers a question that the server has not asked")
        return Checked(token, proposal, begun, ticket.question)

    async def _proposal(self, token: Token, ticket: Ticket) -> Proposal:
        if token.proposal_id != ticket.proposal_id:
            raise PhaseError("unknown_proposal", "the token is of another proposal than proposal_id names")
        proposal = await self._store.proposal(token.proposal_id)
        if proposal is None or proposal.nonce != token.nonce:
            raise PhaseError("unknown_proposal", "there is no proposal of this id")
        if proposal.state not in COMMITTABLE and proposal.state is not State.COMMITTED:
            raise PhaseError("unknown_proposal", f"the proposal is {proposal.state}")
        return proposal

    async def consume(self, checked: Checked, attempt_id: str) -> None:
        """Use the token up: of all who try, on whatever replica, one gets past this.

        Raises PhaseError `nonce_replay` for everybody else, `unknown_proposal` where the
        proposal was rejected meanwhile, and StoreUnavailableError.
        """
        if checked.begun is not None:
            await self._resume(checked.begun, attempt_id, checked.question or "")
            return
        token = checked.token
        consumed = await self._store.consume(
            Commit(
                proposal_id=token.proposal_id,
                nonce=token.nonce,
                attempt_id=attempt_id,
                at=self._clock(),
                expires_at=token.expires_at,
            )
        )
        if consumed is Consumed.UNKNOWN:
            raise PhaseError("unknown_proposal", "the proposal was withdrawn")
        if consumed is not Consumed.OURS:
            raise PhaseError("nonce_replay", "the token was used before")

    async def _resume(self, begun: Commit, attempt_id: str, question: str) -> None:
        """Go on with a commit that the server answered with a question, once for each question."""
        commit: Commit | None = begun
        for seconds in _WAITS:
            if commit is None or commit.outcome is not None:
                break
            await self._wait(seconds)
            commit = await self._store.commit(begun.nonce)
        resumed = commit is not None and commit.outcome == INPUT_REQUIRED
        if not resumed or not await self._store.resume(begun.nonce, attempt_id, question):
            raise PhaseError("nonce_replay", "the token was used before, and the server has not asked this since")


def _check_call(token: Token, proposal: Proposal, call: Call) -> None:
    try:
        digest = hash_arguments(call.arguments)
    except NotExactError as error:
        raise PhaseError("args_hash_mismatch", str(error)) from error
    for what, said, is_so in (
        ("arguments", token.tool_args_hash, digest),
        ("tool", token.tool_name, call.tool),
        ("server", token.server, call.server),
        ("caller", token.principal, call.agent),
        ("arguments", proposal.arguments_hash, digest),
    ):
        if said != is_so:
            raise PhaseError("args_hash_mismatch", f"the {what} differ from what was proposed")


def check_terms(proposal: Proposal, terms: Terms | None) -> None:
    """Refuse a commit of a proposal that the rules, as they are now, would not have let pass.

    Raises PhaseError `approval_required` or `low_integrity`.
    """
    if terms is None or proposal.operator is not None:
        return
    if terms.approval == "human":
        raise PhaseError("approval_required", "the rules have changed, and now a person has to approve")
    if proposal.composite_score is None or proposal.composite_score >= terms.block_threshold:
        raise PhaseError("low_integrity", "the rules have changed, and the proposal's score is now too high")
