"""The tests that policy files have beside their rules."""

from proxy.policy.decide import CompiledPolicy
from proxy.policy.rule_tests import coverage, run_policy_tests, run_tests
from proxy.policy.rules import EgressPolicy, PolicyFile

DENY = {"id": "d", "action": "deny", "when": {"all": [{"arg": "path", "path_under": "/etc"}]}}


def rules(*written):
    return PolicyFile.model_validate({"version": 1, "rules": list(written)}).rules


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


def test_the_tests_beside_a_secrets_rule_run():
    tests = [{"request": {"host": host}, "expect": "secrets"} for host in ("A.com.", "b.com")]
    section = EgressPolicy.model_validate({"rules": [{**SECRETS, "tests": tests}]})
    assert [result.passed for result in run_tests((), section.rules)] == [True, False]


def test_an_allow_that_cannot_be_judged_does_not_match_and_gives_the_reason():
    allow = {"id": "a", "action": "allow", "when": {"arg": "path", "path_under": "/work"}}
    test = {"call": {"tool": "t", "arguments": {"path": 5}}, "expect": "no_match", "reason": "wrong_type"}
    (result,) = run_tests(rules({**allow, "tests": [test]}))
    assert result.passed
    assert result.got == "no_match wrong_type"


def test_a_rule_without_a_test_that_it_must_not_match_is_not_covered():
    made = rules({**DENY, "tests": [{"call": {"tool": "t", "arguments": {"path": "/etc"}}, "expect": "deny"}]})
    (covered,) = coverage(made, run_tests(made))
    assert (covered.matching, covered.silent, covered.complete) == (1, 0, False)


WHOLE_POLICY = {
    "version": 1,
    "default": "allow",
    "rules": [
        {
            "id": "no-rm",
            "action": "deny",
            "tools": ["rm"],
            "tests": [
                {"call": {"tool": "rm"}, "expect": "deny"},
                {"call": {"tool": "rm"}, "expect": "deny by no-rm"},
                {"call": {"tool": "ls"}, "expect": "allow by default", "reason": "default_allow"},
            ],
        },
        {"id": "no-all", "action": "deny", "severity": "high", "tools": ["all"]},
    ],
    "tests": [
        {"call": {"tool": "all"}, "expect": "deny by no-all"},
        {"call": {"tool": "all"}, "expect": "deny"},
        {"call": {"tool": "all"}, "expect": "deny by no-rm"},
        {"call": {"tool": "ls"}, "expect": "deny"},
    ],
}


def test_tests_of_the_whole_policy_say_which_rule_decides():
    content = PolicyFile.model_validate(WHOLE_POLICY)
    results = run_policy_tests(CompiledPolicy(content.rules, default="allow"), content.tests)
    assert [(r.rule, r.number, r.passed, r.got) for r in results] == [
        ("no-rm", 2, True, "deny by no-rm"),
        ("no-rm", 3, True, "allow by default default_allow"),
        ("policy", 1, True, "deny by no-all"),
        ("policy", 2, True, "deny"),
        ("policy", 3, False, "deny by no-all"),
        ("policy", 4, False, "allow"),
    ]
    alone = run_tests(content.rules)
    assert [(r.number, r.passed) for r in alone] == [(1, True)]
