"""The tests beside flows, those of the example among them."""

from __future__ import annotations

from pathlib import Path

from proxy.flows.flow_tests import run_flow_tests
from proxy.policy.flow_rules import FlowRule, LabelRule
from proxy.policy.lint import lint_flows
from proxy.policy.load import load_sources
from proxy.policy.rule_tests import coverage
from proxy.redact import builtin

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_keeps_what_its_tests_say() -> None:
    (source,) = load_sources(ROOT / "examples" / "flows" / "policy.yaml", builtin())
    labels, flows = source.content.labels, source.content.flows
    results = run_flow_tests(labels, flows)
    assert results
    assert [result for result in results if not result.passed] == []
    assert all(covered.complete for covered in coverage(flows, results))
    assert lint_flows(labels, flows, []) == ()


def test_a_test_that_expects_something_else_fails() -> None:
    labels = [LabelRule.model_validate({"id": "a", "hosts": ["*.blog.example"], "gives": "untrusted"})]
    page = {"host": "x.blog.example", "result": "nothing much", "ago": "5m"}
    request = {"host": "evil.example", "body": "x"}
    fields = {"id": "f", "from": "untrusted", "to": {"hosts": ["evil.example"]}, "within": "10m"}
    tests = [
        {"after": page, "request": request, "expect": "deny"},
        {"after": {**page, "ago": "11m"}, "request": request, "expect": "no_match"},
        {"after": {**page, "host": "other.example"}, "request": request, "expect": "deny"},
    ]
    results = run_flow_tests(labels, [FlowRule.model_validate({**fields, "tests": tests})])
    assert [result.passed for result in results] == [True, True, False]
