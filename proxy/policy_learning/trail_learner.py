"""Learns a least-privilege policy from recorded calls. Pure; memory is bounded however long the trail is.

The trail is read several times: once to sum up its calls, then to decide them again by what was learned, until no
call that was learned from is refused. Where a condition is too narrow for a recorded call, it is widened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from proxy.core.model import Outcome
from proxy.core.rule_proposals import HOST as RULE_HOST
from proxy.errors import PolicyError
from proxy.policy.conditions import conditions_in
from proxy.policy.decide import SESSION_METHODS, CompiledPolicy
from proxy.policy.eval_context import EvalContext
from proxy.policy.operators import compile_when
from proxy.policy.replay import recorded_call, recorded_outcome
from proxy.policy.views import YES
from proxy.policy_learning.argument_rules import ANYTHING
from proxy.policy_learning.host_rules import HostLearner, LearnedHost
from proxy.policy_learning.learned_rule import LearnedRule, ToolCalls, compile_values, conditions_of, make_rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from proxy.core.model import Call
    from proxy.policy.conditions import When

MAX_TOOLS: Final = 2000  # of all agents together; each holds a bounded summary
MAX_PASSES: Final = 8

type _Key = tuple[str, str, str, str | None, str]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which of the calls that are read to learn from; `without` are audit ids that a person marked."""

    without: frozenset[str] = frozenset()


@dataclass(slots=True)
class LearnedPolicy:
    """The rules, how many calls they rest on, and what was not learned."""

    rules: tuple[LearnedRule, ...] = ()
    hosts: tuple[LearnedHost, ...] = ()
    knows_hosts: bool = False  # whether requests were recorded, so that what is in no rule was not done
    learned: int = 0
    denied: int = 0
    marked: int = 0
    uncovered: list[str] = field(default_factory=list)  # audit ids of calls that no rule can name
    widened: int = 0

    def compiled(self) -> CompiledPolicy:
        return CompiledPolicy([compile_values(rule.values) for rule in self.rules])

    def evidence(self) -> list[dict[str, Any]]:
        """Return what each rule rests on, as JSON."""
        return [*(rule.evidence() for rule in self.rules), *(rule.evidence() for rule in self.hosts)]


def learn_policy(read: Callable[[], Iterable[Mapping[str, Any]]], scope: Scope) -> LearnedPolicy:
    """Return the policy that allows the calls in `read()`; it is called once for each pass. Raises PolicyError."""
    learner = _Learner(scope)
    for event in read():
        learner.add(event)
    for _ in range(MAX_PASSES):
        made = learner.make()
        if not learner.widen(made, read()):
            break
    return made


class _Learner:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._tools: dict[_Key, ToolCalls] = {}
        self._hosts = HostLearner()
        self._nameless: list[str] = []
        self._denied = self._marked = self._widened = 0

    def _wanted(self, event: Mapping[str, Any]) -> tuple[Call, str] | None:
        """Return a call to learn from, and what was decided of it; None for any other event."""
        if event.get("kind") != "decided" or not event.get("method") or event["method"] in SESSION_METHODS:
            return None
        if event.get("server") == RULE_HOST:
            return None  # where agents propose rules: no server
        outcome = recorded_outcome(event)
        if outcome not in ("allow", "two_phase"):
            return None
        return None if _ids(event) & self._scope.without else (recorded_call(event), outcome)

    def add(self, event: Mapping[str, Any]) -> None:
        if not _ids(event) & self._scope.without:
            self._hosts.add(event, _audit_id(event))
        found = self._wanted(event)
        if found is None:
            marked = event.get("kind") == "decided" and bool(_ids(event) & self._scope.without)
            self._marked += marked
            self._denied += not marked and event.get("kind") == "decided" and event.get("decision") == "deny"
            return
        call, outcome = found
        if call.tool == "":
            self._nameless.append(_audit_id(event))  # no glob fits it alone
            return
        key = (call.agent, call.server, call.method, call.tool, outcome)
        if key not in self._tools:
            if len(self._tools) >= MAX_TOOLS:
                raise PolicyError(f"the trail has calls of more than {MAX_TOOLS} tools; narrow them with --agent")
            self._tools[key] = ToolCalls(*key)
        self._tools[key].add(call, _audit_id(event), float(event.get("time") or 0.0))

    def make(self) -> LearnedPolicy:
        alike: dict[tuple[Any, ...], list[ToolCalls]] = {}
        for calls in sorted(self._tools.values(), key=lambda one: (one.server, one.tool or one.method, one.agent)):
            alike.setdefault((calls.server, calls.method, calls.tool, calls.outcome, conditions_of(calls)), []).append(
                calls
            )
        names: dict[str, int] = {}
        rules = tuple(make_rule(calls, _rule_id(calls[0], names)) for calls in alike.values())
        learned = sum(one.seen.count for one in self._tools.values())
        counts = (learned, self._denied, self._marked)
        hosts, unnamed = self._hosts.rules()
        return LearnedPolicy(rules, hosts, self._hosts.known, *counts, [*self._nameless, *unnamed], self._widened)

    def widen(self, made: LearnedPolicy, events: Iterable[Mapping[str, Any]]) -> bool:
        """Decide the calls again; widen what refuses one of them. Return whether something was widened."""
        policy = made.compiled()
        by_tool = {_key(calls): rule for rule in made.rules for calls in rule.calls}
        changed: set[tuple[_Key, str]] = set()
        for event in events:
            found = self._wanted(event)
            if found is None:
                continue
            call, outcome = found
            key = (call.agent, call.server, call.method, call.tool, outcome)
            rule = by_tool.get(key)  # None: the call came after the first pass
            if rule is None or policy.decide(call).outcome in (Outcome.ALLOW, Outcome.TWO_PHASE):
                continue
            blamed = _blamed(compile_values(rule.values).when, call)
            # For this agent alone: what it sends widens no rule of another one.
            levels = self._tools[key].levels
            changed |= {(key, place) for place in blamed if levels.get(place, 0) < ANYTHING}
            if not blamed:
                made.uncovered.append(_audit_id(event))
        for key, place in changed:
            self._tools[key].levels[place] = self._tools[key].levels.get(place, 0) + 1
        self._widened += len(changed)
        return bool(changed)


def _key(calls: ToolCalls) -> _Key:
    return calls.agent, calls.server, calls.method, calls.tool, calls.outcome


def _ids(event: Mapping[str, Any]) -> set[str]:
    return {str(event[name]) for name in ("call_id", "event_id") if event.get(name)}


def _audit_id(event: Mapping[str, Any]) -> str:
    return str(event.get("call_id") or event.get("event_id") or "")


def _blamed(when: When | None, call: Call) -> set[str]:
    """Return the places whose condition does not surely hold for a call."""
    parts = getattr(when, "all", ())
    context = EvalContext(call.arguments or {}, call.tool or "")
    failing = [part for part in parts if compile_when(part)(context) != YES]
    return {condition.arg for part in failing for condition in conditions_in(part)}


def _rule_id(calls: ToolCalls, names: dict[str, int]) -> str:
    wanted = "-".join(filter(None, (calls.server, calls.tool or calls.method)))
    name = f"learned-{re.sub(r'[^A-Za-z0-9._-]+', '-', wanted)[:70]}"
    names[name] = names.get(name, 0) + 1
    return name if names[name] == 1 else f"{name}.{names[name]}"
