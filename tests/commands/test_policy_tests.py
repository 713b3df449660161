"""Every test of a policy is run, wherever it stands."""

from __future__ import annotations

from proxy.commands.policy_tests import run_all_tests
from tests.rollout.fixtures import bundle

MORE = """
limits: [{id: l, tools: [a], count: 1, within: 1h, tests: [{call: {tool: a}, expect: counts}]}]
egress:
  rules:
    - {id: e, action: deny, hosts: [x.example], tests: [{request: {host: x.example, port: 443}, expect: allow}]}
tests: [{call: {tool: b}, expect: deny}]
"""


def test_tests_of_rules_limits_destinations_and_the_whole_are_run() -> None:
    results, covered = run_all_tests(bundle("a", more=MORE).sources())
    assert {(result.rule, result.passed) for result in results} == {("l", True), ("e", False), ("policy", False)}
    assert {rule.rule for rule in covered} == {"no-a", "l", "e"}
