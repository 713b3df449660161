"""What a caller gives with a proposal, where a new one stands, and what it is answered."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import Call
from proxy.core.proposals import Proposal, State, Terms
from proxy.errors import PhaseError
from proxy.twophase.propose import (
    MAX_TEXT,
    NO_EVIDENCE,
    Evidence,
    Plan,
    answer_not_required,
    answer_proposal,
    describe,
    draft,
    exact_hash,
    split_evidence,
    timestamp,
)
from proxy.twophase.scoring import Score
from proxy.twophase.tokens import KeyRing, SigningKey, read

RING = KeyRing(SigningKey("k1", b"k" * 32))
ARGUMENTS = {"amount": 100}
PLAN = Plan(
    call=Call("tools/call", "bank", "bot", "transfer", ARGUMENTS),
    terms=Terms("pay", token_seconds=60.0, approval_seconds=600.0),
    evidence=NO_EVIDENCE,
    arguments={"amount": "***"},
    prompt=None,
    description=None,
    policy_version="v1",
    call_id="c",
)
GOOD = Score(composite=0.1, signals={"output_instability": 0.1}, absent={}, blocked=False, reason=None)
BAD = replace(GOOD, composite=0.9, blocked=True, reason="low_integrity")
UNKNOWN = replace(GOOD, composite=None, signals={}, blocked=True, reason="no_signals")


def made(score: Score = GOOD, **terms: Any) -> Proposal:
    plan = replace(PLAN, terms=replace(PLAN.terms, **terms))
    return draft(plan, exact_hash(ARGUMENTS), score, "p", 1000.0)


def answer(proposal: Proposal, now: float = 1000.0) -> Any:
    result = answer_proposal(proposal, ARGUMENTS, "transfer_commit", RING, now)
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return result["structuredContent"]


def test_evidence_is_parted_from_the_tools_own_arguments() -> None:
    extra = {"prompt": "pay bob", "candidate_outputs": ["a", "b"]}
    assert split_evidence({**ARGUMENTS, "_interlock": extra}) == (ARGUMENTS, Evidence("pay bob", ("a", "b")))
    assert split_evidence(ARGUMENTS) == (ARGUMENTS, NO_EVIDENCE)
    assert split_evidence(None) == (None, NO_EVIDENCE)


@pytest.mark.parametrize(
    "extra",
    [
        None,
        [],
        {"else": 1},
        {"prompt": 7},
        {"candidate_outputs": ["a"]},
        {"candidate_outputs": ["a", 1]},
        {"candidate_outputs": ["a", " "]},
    ],
)
def test_evidence_of_another_form_is_refused(extra: Any) -> None:
    with pytest.raises(PhaseError) as caught:
        split_evidence({"_interlock": extra})
    assert caught.value.reason == "bad_proposal"


def test_evidence_is_bounded() -> None:
    with pytest.raises(PhaseError) as caught:
        split_evidence({"_interlock": {"prompt": "x" * (MAX_TEXT + 1)}})
    assert caught.value.reason == "proposal_too_large"


@pytest.mark.parametrize(
    ("score", "terms", "state"),
    [
        (GOOD, {}, State.PROPOSED),
        (GOOD, {"approval": "human"}, State.PENDING),
        (BAD, {}, State.BLOCKED),
        (BAD, {"approval": "human"}, State.BLOCKED),
        (BAD, {"review": True}, State.PENDING),
        (UNKNOWN, {}, State.BLOCKED),
        (UNKNOWN, {"approval": "human"}, State.PENDING),
    ],
)
def test_where_a_new_proposal_stands_follows_from_its_score_and_its_rules(
    score: Score, terms: dict[str, Any], state: State
) -> None:
    proposal = made(score, **terms)
    assert proposal.state is state
    assert proposal.expires_at == (1600.0 if state is State.PENDING else 1060.0)
    assert proposal.approval == ("human" if state is State.PENDING else "auto")


def test_what_is_stored_is_masked_and_no_two_proposals_share_a_nonce() -> None:
    assert made().arguments == {"amount": "***"}
    assert made().nonce != made().nonce
    assert describe(made())["arguments_hash"] == exact_hash(ARGUMENTS)


def test_a_good_proposal_is_answered_with_a_token_for_it() -> None:
    proposal = made()
    given = answer(proposal)
    token = read(given["commit_token"], RING)
    assert (given["status"], token.nonce, token.tool_args_hash) == ("allowed", proposal.nonce, proposal.arguments_hash)


def test_no_token_outlives_its_proposal() -> None:
    approved = replace(made(approval="human"), state=State.APPROVED)
    late = answer(approved, now=1590.0)
    assert read(late["commit_token"], RING).expires_at == 1600.0


@pytest.mark.parametrize("state", [State.PENDING, State.REJECTED, State.BLOCKED])
def test_no_other_proposal_is_answered_with_a_token(state: State) -> None:
    given = answer(replace(made(), state=state))
    assert (given["status"], "commit_token" in given) == (str(state), False)


def test_a_draft_has_the_callers_own_arguments() -> None:
    assert answer(made(BAD))["draft"] == {"tool": "transfer", "arguments": ARGUMENTS}


def test_a_call_that_needs_no_proposal_is_told_to_be_made_directly() -> None:
    result = answer_not_required("balance")
    assert result["structuredContent"] == {"status": "not_required", "tool": "balance"}
    assert "'balance'" in result["content"][1]["text"]


def test_arguments_that_have_no_exact_hash_are_refused() -> None:
    with pytest.raises(PhaseError) as caught:
        exact_hash({"n": float("nan")})
    assert caught.value.reason == "inexact_value"


def test_times_are_written_in_utc() -> None:
    assert timestamp(0.5) == "1970-01-01T00:00:00Z"
