"""What a commit presents is parted from the tool's arguments, and is good for the one call that was proposed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import Call
from proxy.core.proposals import Proposal, State, Terms
from proxy.errors import PhaseError
from proxy.twophase.commit import Ticket, check_call, check_terms, hash_question, split_ticket
from proxy.twophase.hashing import hash_arguments
from proxy.twophase.tokens import Token

ARGUMENTS = {"amount": 100, "to": "bob"}
DIGEST = hash_arguments(ARGUMENTS)
CALL = Call("tools/call", "bank", "bot", "transfer", ARGUMENTS)
TOKEN = Token(
    token_id="t",
    proposal_id="p",
    tool_name="transfer",
    tool_args_hash=DIGEST,
    issued_at=1.0,
    expires_at=2.0,
    nonce="n",
    composite_score=0.1,
    server="bank",
    principal="bot",
)
PROPOSAL = Proposal(
    proposal_id="p",
    server="bank",
    tool="transfer",
    principal="bot",
    arguments_hash=DIGEST,
    arguments=ARGUMENTS,
    rule="pay",
    policy_version="v1",
    approval="auto",
    state=State.PROPOSED,
    nonce="n",
    created_at=1.0,
    expires_at=2.0,
    token_seconds=300.0,
    composite_score=0.1,
)
FIELDS = {"proposal_id": "p", "commit_token": "x"}


@pytest.mark.parametrize(
    "given",
    [
        {**ARGUMENTS, **FIELDS},
        {**ARGUMENTS, "_interlock": FIELDS},
        {**ARGUMENTS, **FIELDS, "_interlock": {"prompt": "the one of the proposal"}},
    ],
    ids=["beside", "inside", "with what the proposal had"],
)
def test_the_token_is_parted_from_the_tools_own_arguments(given: dict[str, Any]) -> None:
    assert split_ticket(given, question=None) == (ARGUMENTS, Ticket("p", "x"))


@pytest.mark.parametrize("given", [None, {}, {"proposal_id": 7, "commit_token": ["x"]}])
def test_what_is_no_token_is_an_empty_ticket(given: Any) -> None:
    assert split_ticket(given, question="q") == ({}, Ticket("", "", "q"))


def test_the_very_call_that_was_proposed_passes() -> None:
    check_call(TOKEN, PROPOSAL, CALL)


@pytest.mark.parametrize(
    ("call", "differs"),
    [
        (replace(CALL, arguments={**ARGUMENTS, "amount": 101}), "arguments"),
        (replace(CALL, arguments=None), "arguments"),
        (replace(CALL, tool="transfer_all"), "tool"),
        (replace(CALL, server="other"), "server"),
        (replace(CALL, agent="eve"), "caller"),
    ],
    ids=["arguments", "none", "tool", "server", "caller"],
)
def test_any_other_call_is_refused_and_the_refusal_says_what_differs(call: Call, differs: str) -> None:
    with pytest.raises(PhaseError, match=f"the {differs} differ") as caught:
        check_call(TOKEN, PROPOSAL, call)
    assert caught.value.reason == "args_hash_mismatch"


def test_a_stored_proposal_of_other_arguments_is_refused_whatever_the_token_says() -> None:
    with pytest.raises(PhaseError, match="arguments differ"):
        check_call(TOKEN, replace(PROPOSAL, arguments_hash="other"), CALL)


def test_rules_that_are_stricter_now_refuse_what_they_would_not_have_let_pass() -> None:
    check_terms(PROPOSAL, None)
    check_terms(PROPOSAL, Terms("pay"))
    with pytest.raises(PhaseError) as caught:
        check_terms(PROPOSAL, Terms("pay", approval="human"))
    assert caught.value.reason == "approval_required"
    for unfit in (replace(PROPOSAL, composite_score=0.45), replace(PROPOSAL, composite_score=None)):
        with pytest.raises(PhaseError) as caught:
            check_terms(unfit, Terms("pay"))
        assert caught.value.reason == "low_integrity"


def test_what_a_person_approved_stands_however_the_rules_change() -> None:
    approved = replace(PROPOSAL, operator="ann", approvals=1, composite_score=None)
    check_terms(approved, Terms("pay", approval="human"))


def test_what_one_person_approved_does_not_stand_where_two_have_to() -> None:
    approved = replace(PROPOSAL, operator="ann", approvals=1)
    with pytest.raises(PhaseError) as caught:
        check_terms(approved, Terms("pay", approval="human", people=2))
    assert caught.value.reason == "approval_required"
    check_terms(replace(approved, approvals=2), Terms("pay", approval="human", people=2))


def test_questions_are_told_apart_and_anything_but_text_is_the_empty_one() -> None:
    assert hash_question("a") != hash_question("b")
    assert hash_question(None) == hash_question(7) == hash_question("")
    assert hash_question("\ud800")
