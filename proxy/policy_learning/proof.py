"""Whether a policy lets through a call that another stops: their rules by `widening`, and what is beside them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.policy.load import compile_sources
from proxy.policy_learning.widening import Verdict, find_widening

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        if _masking(values[0]) != _masking(values[1]):
            verdict.why.append("redact rules that deny differ, and detectors are not compared")
        verdict.answer = "unknown" if verdict.why else "no"
    return verdict


def _masking(values: Mapping[str, Any]) -> list[Any]:
    return [rule for rule in values.get("rules") or () if rule.get("redact") == "deny"]
