"""Committing: what a commit presents, and whether it is good for the very call that it came with. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.errors import PhaseError
from proxy.twophase.hashing import NotExactError, hash_arguments
from proxy.twophase.listing import COMMIT_TOKEN, EXTRA, PROPOSAL_ID

if TYPE_CHECKING:
    from proxy.core.model import Call, JsonObject
    from proxy.core.proposals import Commit, Proposal, Terms
    from proxy.twophase.tokens import Token

INPUT_REQUIRED: Final = "input_required"


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
    begun: Commit | None = None  # the commit that this one continues
    question: str | None = None  # the hash of the question that it answers


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


def check_call(token: Token, proposal: Proposal, call: Call) -> None:
    """Refuse a call that is not the very one that was proposed. Raises PhaseError `args_hash_mismatch`."""
    try:
        digest = hash_arguments(call.arguments)
    except NotExactError as error:
        raise PhaseError("args_hash_mismatch", str(error)) from error
    # The token is compared with the call, and the stored proposal as well: neither alone is trusted.
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
    """Raise PhaseError `approval_required` or `low_integrity` where today's rules would not let the proposal pass."""
    if terms is None:
        return
    # People have seen the arguments themselves, so no rule of scores or approval is stricter than that.
    if proposal.operator is not None:
        if proposal.approvals < terms.people:
            raise PhaseError("approval_required", f"the rules have changed, and now {terms.people} people approve")
        return
    if terms.approval == "human":
        raise PhaseError("approval_required", "the rules have changed, and now a person has to approve")
    if proposal.composite_score is None or proposal.composite_score >= terms.block_threshold:
        raise PhaseError("low_integrity", "the rules have changed, and the proposal's score is now too high")
