"""Writes a learned policy as a file that people read: each rule below its evidence. Pure.

Names and arguments come from agents and servers that are not trusted: a comment never has a second line, and values
are written as ASCII.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from proxy.learn.profile_text import comment
from proxy.policy.policy_writer import write_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.policy_learning.host_rules import LearnedHost
    from proxy.policy_learning.learned_rule import LearnedRule
    from proxy.policy_learning.trail_learner import LearnedPolicy

MAX_IDS = 24


def policy_text(learned: LearnedPolicy, source: str, *, shadow: bool = False) -> str:
    """Return the policy file; `source` says in a few words what it was learned from."""
    return "\n".join(_lines(learned, source, shadow=shadow)) + "\n"


def _lines(learned: LearnedPolicy, source: str, *, shadow: bool) -> Iterator[str]:
    yield f"# Learned from {comment(source)}."
    left = f"{learned.denied} that were refused, {learned.marked} that a person marked"
    yield f"# {learned.learned} calls. Not learned: {left}."
    yield "# What no rule here allows is denied, also calls of agents and servers that were not learned from."
    for audit_id in learned.uncovered[:MAX_IDS]:
        yield f"# No rule can name this call, so it would be denied: {comment(audit_id)}"
    yield "version: 1"
    if shadow:
        yield "mode: shadow  # only records: remove this line to put the policy in force"
    yield "default: deny"
    yield "rules:" if learned.rules else "rules: []"
    for rule in learned.rules:
        yield from _rule(rule, "  ", "calls")
    yield from _hosts(learned)


def _hosts(learned: LearnedPolicy) -> Iterator[str]:
    yield ""
    if not learned.knows_hosts:
        yield "# Hosts were not learned: requests are recorded only under egress: {default: report}."
        return
    yield "egress:"
    yield "  default: deny"
    yield "  rules:" if learned.hosts else "  rules: []"
    for rule in learned.hosts:
        yield from _rule(rule, "    ", "requests")


def _rule(rule: LearnedRule | LearnedHost, indent: str, what: str) -> Iterator[str]:
    yield ""
    yield from (f"{indent}{line}" if line else "" for line in _evidence(rule, what))
    yield from (f"{indent}{line}" if line else "" for line in write_yaml([dict(rule.values)]).rstrip("\n").split("\n"))


def _evidence(rule: LearnedRule | LearnedHost, what: str) -> Iterator[str]:
    found = rule.evidence()
    ids = found["audit_ids"]
    yield f"# Evidence: {found['calls']} {what}, first {_utc(found['first'])}, last {_utc(found['last'])}."
    for start in range(0, min(len(ids), MAX_IDS), 3):
        yield f"# Audit ids: {comment(', '.join(ids[start : start + 3]))}"
    if (rest := found["calls"] - min(len(ids), MAX_IDS)) > 0:
        yield f"# and {rest} more"
    for place, words in found["made_of"].items():
        yield f"# {comment(f'{place}: {words}')}"


def _utc(moment: float) -> str:
    return f"{dt.datetime.fromtimestamp(moment, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
