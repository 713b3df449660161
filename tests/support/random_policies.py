"""Small random policies, and every call of a small world: what a proof is compared with."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from proxy.core.model import Call
from proxy.policy.decide import CompiledPolicy
from proxy.policy.past import Past
from proxy.policy.rules import PolicyFile
from proxy.policy_learning.widening import find_widening, rank

if TYPE_CHECKING:
    import random

# Odd values on purpose: other cases, numbers as text, text that reads as JSON or as an escape, wrong types.
VALUES: tuple[Any, ...] = (
    *(..., None, 0, 3, 5, 7, 5.5, "5", True, "a", "A", "b", "ab", "/srv/x", "/srv/x/../y", "/etc/passwd", "%2fetc%2fx"),
    *("https://a.example/", "https://b.example/x", '"a"', '["a"]', "{bad", [], ["a"], {}, {"k": 1}),
)
TOOLS = ("read", "READ", "write", "reads", "other")
CONDITIONS: tuple[dict[str, Any], ...] = (
    *({"equals": "a"}, {"in": ["a", "b"]}, {"in": ["b", 5]}, {"equals": None}, {"not_equals": "a"}),
    *({"gt": 3}, {"gte": 5}, {"lt": 5}, {"lte": 3}, {"gte": 3, "lte": 7}),
    *({"exists": True}, {"exists": False}, {"type": "string"}, {"type": ["number", "null"]}),
    *({"path_under": "/srv"}, {"path_under": ["/srv/x", "/etc"]}, {"path_under": "/srv/x"}),
    *({"host_in": "a.example"}, {"host_in": ["a.example", "b.example"]}, {"starts_with": "a"}, {"contains": "b"}),
    *({"length": 1}, {"matches": "^a"}, {"length": {"lte": 2}}),
)


def random_policy(rng: random.Random) -> dict[str, Any]:
    rules = [_rule(rng, number) for number in range(rng.randrange(4))]
    return {"version": 1, "default": rng.choice(("allow", "deny", "deny")), "rules": rules}


def changed(rng: random.Random, policy: dict[str, Any]) -> dict[str, Any]:
    """Return a policy that is like another one: most changes are small."""
    rules = [rule for rule in policy["rules"] if rng.random() > 0.2]
    rules += [{**_rule(rng, 9), "id": "added"}] if rng.random() < 0.5 else []
    default = policy["default"] if rng.random() < 0.8 else rng.choice(("allow", "deny"))
    return {"version": 1, "default": default, "rules": rules}


def _rule(rng: random.Random, number: int) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": f"r{number}", "action": rng.choice(("allow", "allow", "deny", "deny", "two_phase"))}
    if rng.random() < 0.7:
        rule["tools"] = rng.choice((["read"], ["write"], ["read", "write"], ["read*"], ["*"]))
    if rng.random() < 0.85:
        rule["when"] = _when(rng, 2)
    return rule


def _when(rng: random.Random, depth: int) -> dict[str, Any]:
    kind = rng.randrange(6) if depth else 5
    if kind in (0, 1):
        return {("all", "any")[kind]: [_when(rng, depth - 1) for _ in range(rng.randrange(1, 3))]}
    return {"not": _when(rng, depth - 1)} if kind == 2 else {"arg": rng.choice("xy"), **rng.choice(CONDITIONS)}


def compiled(policy: dict[str, Any]) -> CompiledPolicy:
    return CompiledPolicy(PolicyFile.model_validate(policy).call_rules, default=policy["default"])


def brute_force(old: CompiledPolicy, new: CompiledPolicy) -> Call | None:
    """Return a call of the small world that `new` lets through more than `old`; None where there is none."""
    for tool, x, y in itertools.product(TOOLS, VALUES, VALUES):
        arguments = {name: value for name, value in (("x", x), ("y", y)) if value is not ...}
        call = Call("tools/call", "s", "a", tool, arguments, history=Past())
        if rank(new.decide(call)) > rank(old.decide(call)):
            return call
    return None


def compare(rng: random.Random) -> str:
    """Prove a random pair and try all of its calls; return the answer. Raises AssertionError where they disagree."""
    first = random_policy(rng)
    second = changed(rng, first) if rng.random() < 0.8 else random_policy(rng)
    old, new = compiled(first), compiled(second)
    verdict = find_widening(old, new)
    if verdict.answer == "yes":
        assert verdict.witness is not None
        was, now = compiled(first).decide(verdict.witness), compiled(second).decide(verdict.witness)
        assert rank(now) > rank(was), (first, second, verdict)
        return "yes"
    found = brute_force(old, new)
    if verdict.answer == "no":
        assert found is None, (first, second, found)
        return "no"
    assert verdict.why, (first, second)
    return "unknown, and there is one" if found is not None else "unknown"
