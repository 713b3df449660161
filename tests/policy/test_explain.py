"""Explanations: which views each rule saw, and why it matched or not."""

import pytest

from proxy.core.model import Call
from proxy.policy.decide import CompiledPolicy
from proxy.policy.explain import explain
from proxy.policy.rules import PolicyFile


def rules(*written):
    return PolicyFile.model_validate({"version": 1, "rules": list(written)}).rules


def explained(arguments, *written, tool="t", default="allow"):
    return explain(CompiledPolicy(rules(*written), default=default), Call("tools/call", "s", "a", tool, arguments))


DENY = {"id": "d", "action": "deny", "when": {"all": [{"arg": "path", "path_under": "/etc"}]}}


def test_an_explanation_shows_the_views_and_the_winner():
    told = explained({"path": "/tmp/..%2fetc/x"}, DENY, {"id": "w", "action": "deny", "severity": "low"})
    assert told.decision.rule == "d"
    assert told.because == "d is the strictest of the rules that matched; so did w"
    (leaf,) = told.looked_at[0].condition.parts
    assert leaf.answer == "some views"
    assert {"/tmp/..%2fetc/x/", "/etc/x/"} <= set(leaf.views)


def test_an_explanation_says_why_rules_were_passed_over_or_silent():
    told = explained(
        {"path": "/tmp/x"},
        DENY,
        {"id": "s", "action": "deny", "servers": ["other"]},
        {"id": "t", "action": "deny", "tools": ["other"]},
        {"id": "a", "action": "deny", "agents": ["other"]},
        {"id": "m", "action": "deny", "methods": ["ping"]},
    )
    assert {rule: why.partition(":")[0] for rule, why in told.passed_over} == {
        "s": "servers",
        "t": "tools",
        "a": "agents",
        "m": "methods",
    }
    assert [(t.rule, t.matched, t.why) for t in told.looked_at] == [("d", False, "its condition does not hold")]
    assert told.because == "no enforcing rule matched, and the default is allow"


def test_an_explanation_tells_of_trouble_and_of_half_met_allows():
    told = explained({"path": 5}, DENY)
    assert told.looked_at[0].why.startswith("wrong_type")
    assert told.looked_at[0].condition.answer == "cannot tell"
    allow = {"id": "a", "action": "allow", "when": {"arg": "path", "path_under": "/workspace"}}
    told = explained({"path": "/workspace/..%2fx"}, allow, default="deny")
    assert told.looked_at[0].why == "an allow needs every view to match, and only some do"


@pytest.mark.parametrize(
    ("operator", "value", "shown"),
    [
        ({"host_in": "a.com"}, "http://0x7f.1/", "127.0.0.1"),
        ({"command": "x"}, "sudo 'cu''rl' y", "curl y"),
        ({"contains": "x"}, "a%20b", "a b"),
        ({"equals": "x"}, "5.0", "5"),
        ({"gt": 1}, "5e1", "50.0"),
        ({"length": 5}, "abc", "(3,)"),
        ({"exists": True}, "abc", "'abc'"),
    ],
)
def test_an_explanation_shows_the_view_of_each_kind_of_operator(operator, value, shown):
    told = explained({"v": value}, {"id": "r", "action": "deny", "when": {"arg": "v", **operator}})
    assert shown in told.looked_at[0].condition.views


def test_an_explanation_as_json_has_every_part_of_a_condition():
    when = {"any": [{"not": {"arg": "path", "path_under": "/etc"}}, {"arg": "n", "gt": 3}]}
    told = explained({"path": "/etc/x", "n": 5}, {"id": "r", "action": "deny", "when": when}).data()
    assert (told["outcome"], told["rule"]) == ("deny", "r")
    condition = told["looked_at"][0]["condition"]
    assert (condition["asks"], condition["answer"]) == ("any", "yes")
    assert [(part["asks"], part["answer"]) for part in condition["parts"]] == [("not", "no"), ("n gt 3", "yes")]
    assert condition["parts"][0]["parts"][0]["views"] == ("/etc/x/",)


def test_a_rule_that_raises_is_explained_as_an_error():
    told = explained({"n": object()}, {"id": "r", "action": "deny", "when": {"arg": "n", "type": "integer"}})
    condition = told.looked_at[0].condition
    assert (condition.answer, condition.trouble.partition(":")[0]) == ("cannot tell", "TypeError")
    assert told.decision.reason == "policy_error"
