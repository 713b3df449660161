"""Run the tests that policy files have beside their rules. Pure, no I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from proxy.core.external import ExternalAnswer
from proxy.core.model import Call, EgressRequest
from proxy.policy.compiled_rule import CompiledRule, Hit
from proxy.policy.decide import name_variants
from proxy.policy.egress import CompiledEgressRule, Target, read_target
from proxy.policy.eval_context import EvalContext
from proxy.policy.incoming import meets
from proxy.policy.limit_values import read_amount, show_amount
from proxy.policy.limits import CompiledLimit
from proxy.policy.observed import CompiledActRule
from proxy.policy.past import Past
from proxy.policy.rule_parts import as_identity
from proxy.policy.rules import Limit, RedactRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from proxy.policy.decide import CompiledPolicy
    from proxy.policy.flow_rules import FlowRule
    from proxy.policy.incoming import FoundPassage, IncomingRule
    from proxy.policy.observed import ObservedRule
    from proxy.policy.rules import EgressRule, PolicyTest, Rule, RuleTest

# Stands for the rule's id where a test is of the whole policy.
WHOLE: Final = "policy"
# The reason codes of what a test may let a service answer.
ANSWERS: Final = {
    "allow": None,
    "deny": "external_denied",
    "timeout": "external_timeout",
    "unavailable": "external_unavailable",
    "answer": "external_answer",
}


@dataclass(frozen=True, slots=True)
class TestResult:
    """One test: what the rule should do with the call, and what it did."""

    __test__ = False

    rule: str
    number: int
    expected: str
    got: str
    call: str

    @property
    def passed(self) -> bool:
        return self.expected == self.got


@dataclass(frozen=True, slots=True)
class Coverage:
    """How well a rule is tested: at least one test should match it, and one should not, unless it matches all."""

    rule: str
    matching: int
    silent: int
    matches_all: bool = False

    @property
    def complete(self) -> bool:
        return self.matching > 0 and (self.silent > 0 or self.matches_all)


def run_tests(
    rules: Iterable[Rule], egress: Iterable[EgressRule] = (), limits: Iterable[Limit] = ()
) -> tuple[TestResult, ...]:
    """Run every test beside a rule or limit against that one alone."""
    runs = (*map(_run_rule, rules), *map(_run_egress, egress), *map(_run_limit, limits))
    return tuple(chain.from_iterable(runs))


def run_policy_tests(policy: CompiledPolicy, tests: Iterable[PolicyTest]) -> tuple[TestResult, ...]:
    """Run the tests of a whole policy: those given, and those beside its rules that expect `deny by RULE`."""
    whole: list[tuple[str, int, PolicyTest | RuleTest]] = [
        (rule.id, number, test)
        for rule in policy.rules.values()
        for number, test in enumerate(rule.tests, 1)
        if " by " in test.expect
    ]
    whole.extend((WHOLE, number, test) for number, test in enumerate(tests, 1))
    return tuple(_run_whole(policy, *each) for each in whole)


def _run_whole(policy: CompiledPolicy, owner: str, number: int, test: PolicyTest | RuleTest) -> TestResult:
    call = replace(test.call.as_call(), history=Past())
    decision = policy.decide(call)
    if test.answers is not None and decision.asks:
        # A service that the test has no answer for stays unasked, and the outcome external.
        given = {ask: test.answers[ask.service] for ask in decision.asks if ask.service in test.answers}
        answers = {ask: ExternalAnswer(ANSWERS[answer]) for ask, answer in given.items()}
        decision = policy.decide(replace(call, answers=answers))
    got = str(decision.outcome)
    if " by " in test.expect:
        got += f" by {decision.rule or 'default'}"
    expected = test.expect
    if test.reason is not None:
        expected, got = f"{expected} {test.reason}", f"{got} {decision.reason}"
    return TestResult(owner, number, expected, got, f"{call.tool or call.method} {call.arguments!r}")


def run_incoming_tests(
    rules: Iterable[IncomingRule], find: Callable[[bytes], Sequence[FoundPassage]]
) -> tuple[TestResult, ...]:
    """Run every test beside a rule on incoming text; `find` finds the passages that speak to a model."""
    results: list[TestResult] = []
    for rule in rules:
        for number, test in enumerate(rule.tests, 1):
            hit = any(meets(passage, rule.screening()) for passage in find(test.text.encode()))
            got = rule.action if hit else "no_match"
            results.append(TestResult(rule.id, number, test.expect, got, test.text[:80]))
    return tuple(results)


def run_act_tests(rules: Iterable[ObservedRule]) -> tuple[TestResult, ...]:
    """Run every test beside a rule on observed behaviour against that one alone."""
    results: list[TestResult] = []
    for rule in rules:
        compiled = CompiledActRule(rule)
        for number, test in enumerate(rule.tests, 1):
            got = rule.action if compiled.meets(test.seen) else "no_match"
            said = test.seen.model_dump_json(exclude_defaults=True)
            results.append(TestResult(rule.id, number, test.expect, got, said))
    return tuple(results)


type _Testable = Rule | EgressRule | Limit | FlowRule | IncomingRule | ObservedRule


def coverage(rules: Iterable[_Testable], results: Sequence[TestResult]) -> tuple[Coverage, ...]:
    """Count, for each rule, the passing tests in which it matched and did not."""
    passed = Counter((result.rule, result.got == "no_match") for result in results if result.passed)
    return tuple(Coverage(rule.id, passed[rule.id, False], passed[rule.id, True], _matches_all(rule)) for rule in rules)


def _matches_all(rule: _Testable) -> bool:
    narrowed = ("servers", "tools", "agents", "methods", "annotations", "when")
    return isinstance(rule, RedactRule | Limit) and all(getattr(rule, name) is None for name in narrowed)


def _run_rule(rule: Rule) -> Iterator[TestResult]:
    compiled = CompiledRule(rule)
    for number, test in enumerate(rule.tests, 1):
        if " by " in test.expect:
            continue
        call = test.call.as_call()
        got, reason = _outcome(compiled, call)
        if test.reason is not None:
            expected, got = f"{test.expect} {test.reason}", f"{got} {reason}"
            yield TestResult(rule.id, number, expected, got, repr(call.arguments))
        else:
            yield TestResult(rule.id, number, test.expect, got, f"{call.tool or call.method} {call.arguments!r}")


def _outcome(compiled: CompiledRule, call: Call) -> tuple[str, str]:
    applies = compiled.applies_to(call, name_variants(call))
    hit = compiled.evaluate(EvalContext(call.arguments or {}, call.tool or "", history=Past())) if applies else None
    if hit is None:
        return "no_match", ""
    if compiled.allows and hit.reason is not None:
        return "no_match", hit.reason
    plain = "policy_denied" if compiled.rule.action == "deny" else ""
    return compiled.rule.action, hit.reason or plain


def _run_egress(rule: EgressRule) -> Iterator[TestResult]:
    compiled = CompiledEgressRule(rule)
    for number, test in enumerate(rule.tests, 1):
        given = test.request
        identity = as_identity(given.claims, given.provider)
        addresses = tuple(given.addresses)
        request = EgressRequest(given.host, given.port, given.method, addresses, given.agent, identity=identity)
        target = read_target(request)
        got = _egress_outcome(compiled, request, target) if target is not None else "no_match"
        yield TestResult(rule.id, number, test.expect, got, f"{given.method} {given.host}:{given.port}")


def _egress_outcome(compiled: CompiledEgressRule, request: EgressRequest, target: Target) -> str:
    if not compiled.matches(request, target):
        return "no_match"
    if compiled.decides(request, target) or compiled.rule.action == "allow":
        return compiled.rule.action
    return "scan" if compiled.scans else "no_match"


def _run_limit(limit: Limit) -> Iterator[TestResult]:
    compiled = CompiledLimit(limit)
    for number, test in enumerate(limit.tests, 1):
        call = test.call.as_call()
        got, amount, reason = _counted(compiled, call)
        expected = test.expect + (f" {show_amount(read_amount(test.amount))}" if test.amount is not None else "")
        expected += f" {test.reason}" if test.reason is not None else ""
        got += f" {amount}" if test.amount is not None else ""
        got += f" {reason}" if test.reason is not None else ""
        yield TestResult(limit.id, number, expected, got, f"{call.tool or call.method} {call.arguments!r}")


def _counted(compiled: CompiledLimit, call: Call) -> tuple[str, str, str]:
    """Return what a limit makes of a call, how much it counts, and why it refuses."""
    if not compiled.rule.applies_to(call, name_variants(call)):
        return "no_match", "", ""
    found = compiled.charge(call, EvalContext(call.arguments or {}, call.tool or ""), None)
    if found is None:
        return "no_match", "", ""
    if isinstance(found, Hit):
        return "deny", "", found.reason or ""
    return "counts", show_amount(found.amount) if found.kind == "sum" else str(found.amount), ""
