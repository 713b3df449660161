"""Rules as a policy file has them."""

import pytest
from pydantic import ValidationError

from proxy.core.model import Call, Hints
from proxy.policy.rule_parts import TestCall
from proxy.policy.rules import EgressRule, PolicyFile, covered_methods, describe_coverage


def refused(section):
    with pytest.raises(ValidationError) as caught:
        PolicyFile.model_validate({"version": 1, **section})
    return str(caught.value)


def rule(**fields):
    return {"rules": [{"id": "r", "action": "deny", **fields}]}


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"version": 2}, "Input should be 1"),
        ({"rule": []}, "Extra inputs"),
        (rule(id="a b"), "should match pattern"),
        (rule(tools=[]), "at least 1 item"),
        (rule(annotations={}), "annotations needs a hint"),
        (rule(annotations={"destructiveHint": "yes"}), "valid boolean"),
        (rule(tests=[{"call": {}, "expect": "allow"}]), "expect 'deny' or 'no_match'"),
        (rule(action="two_phase", methods=["resources/read"]), "only tools can be two-phase"),
        (rule(action="two_phase", block_threshold=1.5), "less than or equal to 1"),
        (
            rule(
                action="two_phase", weights=dict.fromkeys(("output_instability", "numeric_variance", "prompt_drift"), 0)
            ),
            "at least one weight",
        ),
        (rule(action="two_phase", approval={"how": "phone"}), "'propose', 'hold', 'elicit' or 'task'"),
        (rule(action="two_phase", approval={"people": 0}), "greater than or equal to 1"),
        (rule(action="two_phase", approval={"people": True}), "valid integer"),
        (rule(action="two_phase", approval={"person": 1}), "Extra inputs"),
        (rule(action="two_phase", approvals=2), "write approval: human"),
        (rule(action="two_phase", own="refuse"), "write approval: human"),
        (rule(action="two_phase", approval={"people": 2}, approvals=3), "say the same"),
        (rule(action="two_phase", approval="human", hold_seconds=5), "needs approval: {how: hold}"),
        (rule(action="redact", detectors=[]), "at least 1 item"),
        ({"egress": {"rules": [{"id": "e", "action": "secrets"}]}}, "go together"),
        ({"egress": {"rules": [{"id": "e", "action": "deny", "ports": [0]}]}}, "greater than or equal to 1"),
        ({"egress": {"rules": [{"id": "e", "action": "deny", "cidrs": ["x"]}]}}, "10.0.0.0/8 or fd00::/8"),
    ],
)
def test_a_wrong_rule_is_refused(section, words):
    assert words in refused(section)


def test_an_empty_policy_denies_nothing_by_itself_and_guards_metadata_and_link_local():
    content = PolicyFile.model_validate({"version": 1, "egress": {}})
    assert (content.default, content.rules, content.pins) == (None, [], None)
    assert (content.egress.metadata, content.egress.link_local, content.egress.default) == ("deny", "deny", "allow")


def test_the_call_of_a_test_is_a_tools_call_unless_it_says_otherwise():
    assert TestCall(tool="t").as_call() == Call("tools/call", "server", "agent", "t", None)
    hinted = TestCall(method="x", annotations={"readOnlyHint": True}).as_call()
    assert (hinted.method, hinted.hints) == ("x", Hints.read({"readOnlyHint": True}))


def test_a_rule_never_changes():
    made = EgressRule(id="e", action="deny")
    with pytest.raises(ValidationError):
        made.action = "allow"


@pytest.mark.parametrize(
    ("rule", "methods", "said"),
    [
        ({"action": "deny"}, ["tools/call"], "tools/call"),
        ({"action": "deny", "tools": ["a", "b"]}, ["tools/call"], "tools/call of a, b"),
        ({"action": "redact", "detectors": ["secrets"]}, ["*"], "every method, from the client and from the server"),
        ({"action": "redact", "detectors": ["pii"], "on": ["result"]}, ["*"], "every method, from the server"),
        ({"action": "redact", "detectors": ["pii"], "tools": ["*"]}, ["*"], "every method, from the client and"),
        ({"action": "redact", "detectors": ["pii"], "tools": ["a"]}, ["*"], "tools/call of a and the tasks that it"),
        ({"action": "redact", "detectors": ["pii"], "methods": ["prompts/get"]}, ["prompts/get"], "prompts/get"),
    ],
)
def test_what_a_rule_without_methods_covers_depends_on_its_action(rule, methods, said):
    (made,) = PolicyFile.model_validate({"version": 1, "rules": [{"id": "r", **rule}]}).rules
    assert covered_methods(made) == methods
    assert describe_coverage(made).startswith(said)
