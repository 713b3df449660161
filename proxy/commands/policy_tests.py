"""Runs the tests of a policy, for `interlock policy test` and `interlock policy push`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.flows.flow_tests import run_flow_tests
from proxy.injection import find_passages
from proxy.policy.load import compile_sources
from proxy.policy.rule_tests import (
    Coverage,
    TestResult,
    coverage,
    run_act_tests,
    run_incoming_tests,
    run_policy_tests,
    run_tests,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.policy.load import PolicySource


def run_all_tests(sources: Sequence[PolicySource]) -> tuple[tuple[TestResult, ...], tuple[Coverage, ...]]:
    """Run every test in the files; return the results, and how well each rule is covered."""
    contents = [source.content for source in sources]
    rules = [rule for content in contents for rule in content.call_rules]
    egress = [rule for content in contents if content.egress for rule in content.egress.rules]
    limits = [limit for content in contents for limit in content.limits]
    flows = [flow for content in contents for flow in content.flows]
    incoming = [rule for content in contents for rule in content.incoming]
    observed = [rule for content in contents for rule in content.observed_rules]
    results = (
        *run_tests(rules, egress, limits),
        *run_flow_tests([label for content in contents for label in content.labels], flows),
        *run_incoming_tests(incoming, find_passages),
        *run_act_tests(observed),
        *run_policy_tests(compile_sources(sources), [test for content in contents for test in content.tests]),
    )
    return results, coverage([*rules, *egress, *limits, *flows, *incoming, *observed], results)
