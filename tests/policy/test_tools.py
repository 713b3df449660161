"""Explanations, lint and the tests beside rules."""

import pytest

from proxy.core.model import Call
from proxy.policy.decide import CompiledPolicy
from proxy.policy.explain import explain
from proxy.policy.lint import lint, lint_egress
from proxy.policy.rule_tests import coverage, run_tests
from proxy.policy.rules import Egress, PolicyFile


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


def remarks(*written, default="allow"):
    tests = [{"call": {"tool": "x"}, "expect": "no_match"}]
    made = rules(*({"tests": tests, **rule} for rule in written))
    return [(r.rule, r.kind) for r in lint(made, default)]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([{"id": "a", "action": "deny"}], []),
        ([{"id": "a", "action": "deny", "tests": []}], [("a", "untested")]),
        ([{"id": "a", "action": "allow"}], [("a", "no-effect")]),
        (
            [{"id": "a", "action": "deny", "tools": ["x"]}, {"id": "b", "action": "deny", "tools": ["x"]}],
            [("b", "duplicate")],
        ),
        (
            [
                {"id": "a", "action": "two_phase", "tools": ["x_y"]},
                {"id": "b", "action": "deny", "tools": ["x_*"]},
            ],
            [("a", "shadowed")],
        ),
        (
            [{"id": "a", "action": "deny", "when": {"arg": "x", "equals": 1}}, {"id": "b", "action": "deny"}],
            [("a", "shadowed")],
        ),
        (
            [{"id": "a", "action": "two_phase"}, {"id": "b", "action": "deny", "mode": "shadow"}],
            [],
        ),
        (
            [{"id": "a", "action": "two_phase"}, {"id": "b", "action": "deny", "tools": ["x"]}],
            [],
        ),
        ([{"id": "a", "action": "deny", "tools": ["x"], "methods": ["ping"]}], [("a", "never-matches")]),
        (
            [
                {
                    "id": "a",
                    "action": "deny",
                    "when": {"all": [{"arg": "x", "equals": 1}, {"arg": "x", "equals": 2}]},
                }
            ],
            [("a", "never-matches")],
        ),
        ([{"id": "a", "action": "deny", "when": {"arg": "x", "gt": 5, "lt": 3}}], [("a", "never-matches")]),
        (
            [{"id": "a", "action": "deny", "when": {"arg": "x", "exists": False, "gt": 3}}],
            [("a", "never-matches")],
        ),
        (
            [{"id": "a", "action": "deny", "when": {"arg": "x", "equals": 1, "not_equals": 1}}],
            [("a", "never-matches")],
        ),
        ([{"id": "a", "action": "deny", "when": {"arg": "x", "gt": 3, "lt": 5}}], []),
    ],
)
def test_lint_remarks_on_what_is_probably_not_meant(written, expected):
    assert remarks(*written) == expected


def test_a_failing_test_says_what_was_expected_and_what_came():
    rule = {
        **DENY,
        "tests": [
            {"call": {"tool": "t", "arguments": {"path": "/etc"}}, "expect": "no_match"},
            {"call": {"tool": "t", "arguments": {"path": 5}}, "expect": "deny", "reason": "wrong_type"},
            {"call": {"tool": "t", "arguments": {"path": 5}}, "expect": "deny", "reason": "policy_denied"},
            {"call": {"tool": "t", "arguments": {"path": "/tmp"}}, "expect": "no_match"},
        ],
    }
    made = rules(rule)
    results = run_tests(made)
    assert [r.passed for r in results] == [False, True, False, True]
    assert (results[0].expected, results[0].got) == ("no_match", "deny")
    (covered,) = coverage(made, results)
    assert (covered.matching, covered.silent, covered.complete) == (1, 1, True)


SECRETS = {
    "id": "s",
    "action": "secrets",
    "secrets": "deny",
    "hosts": ["a.com"],
    "tests": [{"request": {"host": "a.com"}, "expect": "secrets"}],
}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"rules": [SECRETS]}, []),
        ({"secrets": "deny", "rules": [SECRETS]}, [("s", "no-effect")]),
        ({"secrets": "deny", "rules": [SECRETS, {**SECRETS, "id": "t", "secrets": "report"}]}, []),
        ({"rules": [{**SECRETS, "tests": []}]}, [("s", "untested")]),
        ({"rules": [{"id": "a", "action": "allow"}]}, [("a", "no-effect"), ("a", "untested")]),
        ({"default": "deny", "rules": [{"id": "a", "action": "allow"}]}, [("a", "untested")]),
    ],
)
def test_lint_remarks_on_egress_rules_that_change_nothing(section, expected):
    assert [(r.rule, r.kind) for r in lint_egress(Egress.model_validate(section))] == expected


def test_the_tests_beside_a_secrets_rule_run():
    tests = [{"request": {"host": host}, "expect": "secrets"} for host in ("A.com.", "b.com")]
    section = Egress.model_validate({"rules": [{**SECRETS, "tests": tests}]})
    assert [result.passed for result in run_tests((), section.rules)] == [True, False]
