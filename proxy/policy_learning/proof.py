"""Whether a policy lets through a call that another stops: their rules by `widening`, and what is beside them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxy.policy.conditions import as_tuple
from proxy.policy.load import compile_sources
from proxy.policy_learning.widening import Verdict, find_widening

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxy.policy.load import PolicySource

# What both policies have alike stops the same calls in both; where these differ, rules alone prove nothing.
_BESIDE_RULES = ("limits", "flows", "labels", "incoming", "home", "detectors", "suppressions", "pins")


def prove(
    first: Sequence[PolicySource], second: Sequence[PolicySource], values: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> Verdict:
    """Return whether the second policy lets through a call that the first stops."""
    verdict = find_widening(compile_sources(first), compile_sources(second))
    if verdict.answer != "yes":
        for name in _BESIDE_RULES:
            if values[0].get(name) != values[1].get(name):
                verdict.why.append(f"{name} differ, and only rules are compared")
        for what, rules_of in _NOT_COMPARED.items():
            if rules_of(values[0]) != rules_of(values[1]):
                verdict.why.append(what)
        verdict.answer = "unknown" if verdict.why else "no"
    return verdict


def _masking(values: Mapping[str, Any]) -> list[Any]:
    return [rule for rule in values.get("rules") or () if rule.get("redact") == "deny"]


def _observed(values: Mapping[str, Any]) -> list[Any]:
    return [rule for rule in values.get("rules") or () if rule.get("on") == "observed"]


def _budgets(values: Mapping[str, Any]) -> list[Any]:
    """Return the rules where limits count for each of them: one more rule is one more budget."""
    per = any("rule" in as_tuple(limit.get("per") or ()) for limit in values.get("limits") or ())
    return list(values.get("rules") or ()) if per else []


_NOT_COMPARED: Final[Mapping[str, Callable[[Mapping[str, Any]], list[Any]]]] = {
    "redact rules that deny differ, and detectors are not compared": _masking,
    "rules on what servers do differ, and they are not compared": _observed,
    "rules differ, and limits count for each rule": _budgets,
}
