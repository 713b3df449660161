"""One rule: the calls it applies to, and what it makes of their arguments."""

import pytest

from proxy.core.model import Call, Hints
from proxy.policy.compiled_rule import POLICY_ERROR, CompiledRule
from proxy.policy.decide import name_variants
from proxy.policy.eval_context import EvalContext
from proxy.policy.rules import PolicyFile

AMOUNT = {"arg": "amount", "gt": 5}
NAME = {"arg": "name", "equals": "x"}


def make(action, when=None, **fields):
    rule = {"id": "r", "action": action, **fields} | ({"when": when} if when else {})
    return CompiledRule(PolicyFile.model_validate({"version": 1, "rules": [rule]}).rules[0])


def evaluate(action, when, arguments):
    hit = make(action, when).evaluate(EvalContext(arguments))
    return None if hit is None else (hit.reason, hit.detail)


@pytest.mark.parametrize("arguments", [{"amount": 6}, {"amount": 6, "Amount": 7}])
def test_a_condition_that_surely_holds_is_a_plain_hit(arguments):
    assert evaluate("deny", AMOUNT, arguments) == (None, "")
    assert evaluate("allow", AMOUNT, arguments) == (None, "")


def test_a_value_of_the_wrong_type_denies_with_its_reason_and_never_allows():
    wrong = ("wrong_type", "string where the rule expects a number")
    assert evaluate("deny", AMOUNT, {"amount": "lots"}) == wrong
    assert evaluate("allow", AMOUNT, {"amount": "lots"}) == wrong
    assert evaluate("deny", {"not": AMOUNT}, {"amount": "lots"}) == wrong


def test_what_cannot_be_judged_gives_no_reason_where_the_rest_decides():
    either = {"any": [AMOUNT, NAME]}
    assert evaluate("deny", either, {"amount": "lots", "name": "X"}) == (None, "")
    both = {"all": [AMOUNT, NAME]}
    assert evaluate("deny", both, {"amount": "lots", "name": "y"}) is None


def test_a_view_that_only_may_match_denies_and_does_not_allow():
    assert evaluate("deny", NAME, {"name": "X"}) == (None, "")
    assert evaluate("allow", NAME, {"name": "X"}) is None


def test_a_condition_that_raises_is_an_error_of_the_policy():
    reason, detail = evaluate("deny", {"arg": "amount", "type": "integer"}, {"amount": object()})
    assert reason == POLICY_ERROR
    assert detail.startswith("TypeError")


@pytest.mark.parametrize(("action", "applies"), [("deny", True), ("redact", True), ("allow", False)])
def test_a_restriction_applies_in_any_reading_of_the_names_and_an_allow_only_in_all(action, applies):
    fields = {"detectors": ["secrets"]} if action == "redact" else {}
    call = Call("tools/call", "s", "a", "Read\u200b_File")
    assert make(action, tools=["read_file"], **fields).applies_to(call, name_variants(call)) is applies


@pytest.mark.parametrize(("hints", "applies"), [({}, True), ({"destructiveHint": False}, False), (None, True)])
def test_annotations_must_be_as_the_server_declares_them(hints, applies):
    rule = make("deny", annotations={"destructiveHint": True})
    call = Call("tools/call", "s", "a", "t", hints=Hints.read(hints))
    assert rule.applies_to(call, name_variants(call)) is applies
