"""Remarks on rules that probably do not do what their author means."""

import pytest

from proxy.policy.lint import lint, lint_egress
from proxy.policy.rules import EgressPolicy, PolicyFile


def rules(*written):
    return PolicyFile.model_validate({"version": 1, "rules": list(written)}).rules


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
    assert [(r.rule, r.kind) for r in lint_egress(EgressPolicy.model_validate(section))] == expected


def test_a_remark_names_the_rule_that_hides_another():
    wide = {"id": "wide", "action": "deny", "tools": ["x*"]}
    narrow = {"id": "narrow", "action": "allow", "tools": ["xy"]}
    (remark,) = [r for r in lint(rules(wide, narrow), "deny") if r.kind == "shadowed"]
    assert (remark.rule, remark.message) == ("narrow", "never decides: wide (deny) matches whatever it matches")
