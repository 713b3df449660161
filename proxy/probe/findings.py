"""Turns observations into findings: applies the rules, and groups what several tools have in common. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from proxy.probe.observation_facts import MISSING, ProbeObservation, RunContext, canaries_sent, facts, was_sought
from proxy.trace.capability import Capability

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.declared_scope import DeclaredScope
    from proxy.probe.rulebook import ProbeRule, Rulebook, Severity

MAX_EVIDENCE = 5
MAX_TARGETS = 6
MAX_LINE = 400
MAX_KEPT_TARGETS = 50
_KEYS = re.compile(r"\b(keyctl|add_key|request_key)\(")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """One finding. `tool` is None for the server itself, at start-up or at the end."""

    tool: str | None
    rule: str
    severity: Severity
    capability: str | None
    message: str
    evidence: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()  # what it was done to
    others: tuple[str | None, ...] = ()  # further tools of which the same is found

    @property
    def tools(self) -> tuple[str | None, ...]:
        return (self.tool, *self.others)

    def data(self) -> JsonObject:
        """Return it as JSON. `tools` has every tool that it is found of; None is the server itself."""
        names = ("tool", "rule", "severity", "capability", "message")
        lists = {name: list(getattr(self, name)) for name in ("tools", "evidence", "targets")}
        return {**{name: getattr(self, name) for name in names}, **lists}


def from_rule(
    rule: ProbeRule,
    tool: str | None,
    capability: str | None,
    seen: str = "",
    evidence: tuple[str, ...] = (),
    targets: tuple[str, ...] = (),
) -> ProbeFinding:
    message = f"{rule.description} {seen}" if seen else rule.description
    return ProbeFinding(tool, rule.id, rule.severity, capability, message, evidence, targets)


@dataclass(frozen=True, slots=True)
class ProbeCall:
    """One call of a tool. `key` is the same for the same arguments; `scope` is declared for these arguments."""

    tool: str
    label: str
    key: str
    scope: DeclaredScope


@dataclass(slots=True)
class RuleMatch:
    """One rule that matched, and the observations by which it did, for each target."""

    rule: ProbeRule
    targets: dict[str, list[ProbeObservation]] = field(default_factory=dict)

    @property
    def records(self) -> list[ProbeObservation]:
        return [record for records in self.targets.values() for record in records]


def judge(
    records: Sequence[ProbeObservation],
    calls: Sequence[ProbeCall],
    startup: DeclaredScope,
    context: RunContext,
    rulebook: Rulebook,
) -> tuple[ProbeFinding, ...]:
    """Apply the rules to what was observed, tool by tool; start-up and end are judged by the server's own scope."""
    found: list[ProbeFinding] = []
    tools: list[str | None] = [None, *dict.fromkeys(call.tool for call in calls)]
    for tool in tools:
        own = [record for record in records if (None if record.call is None else calls[record.call].tool) == tool]
        hits = _apply([(record, _scope(record, calls, startup)) for record in own], context, rulebook)
        found += [_make_finding(tool, hit, calls, context, startup) for hit in hits.values()]
        if tool is not None:
            numbers = [number for number, call in enumerate(calls) if call.tool == tool]
            found += _compare_calls(tool, hits, calls, numbers, rulebook)
    return tuple(found)


def _apply(
    scopes: Iterable[tuple[ProbeObservation, DeclaredScope]], context: RunContext, rulebook: Rulebook
) -> dict[str, RuleMatch]:
    hits: dict[str, RuleMatch] = {}
    for record, scope in scopes:
        if not counts(record) and not was_sought(record.observation):
            continue
        true, target = facts(record, scope, context), context.target(record.observation)
        path = context.tilde(record.observation.path or "")
        for rule in rulebook.rules:
            # Programs look for files all the time: only rules about that very thing are told of it.
            if ("sought" not in true or "sought" in rule.all) and rule.speaks_of(record, path, true):
                hits.setdefault(rule.id, RuleMatch(rule)).targets.setdefault(target, []).append(record)
    # For the same target only the more specific rule is reported.
    for hit in list(hits.values()):
        for weaker in hit.rule.supersedes:
            for target in hit.targets:
                if weaker in hits:
                    hits[weaker].targets.pop(target, None)
    return {name: hits[name] for name in (rule.id for rule in rulebook.rules) if name in hits and hits[name].targets}


def blamed_by(record: ProbeObservation, scope: DeclaredScope, context: RunContext, rulebook: Rulebook) -> str | None:
    """Return the rule of severity high that speaks of one observation; None where none does."""
    if not counts(record):
        return None
    true, path = facts(record, scope, context), context.tilde(record.observation.path or "")
    rules = (rule for rule in rulebook.rules if rule.severity == "high" and "sought" not in rule.all)
    return next((rule.id for rule in rules if rule.speaks_of(record, path, true)), None)


def counts(record: ProbeObservation) -> bool:
    # Attempts count, except for looking at what does not exist, or creating what does: programs do that all the time.
    missing = record.observation.error in MISSING
    looked = missing and record.observation.capability in (Capability.FS_READ, Capability.FS_DELETE)
    return not looked and record.observation.error != "EEXIST"


def _make_finding(
    tool: str | None, hit: RuleMatch, calls: Sequence[ProbeCall], context: RunContext, startup: DeclaredScope
) -> ProbeFinding:
    order = {capability: at for at, capability in enumerate(hit.rule.capability)}
    records = sorted(hit.records, key=lambda record: order[record.observation.capability])
    first = records[0].observation
    tried = "" if first.ok else f" (tried: {first.error})"
    shown = list(hit.targets)[:MAX_TARGETS]
    more = len(hit.targets) - len(shown)
    where = ", ".join(shown) + (f" and {more} more" if more else "")
    sources = {
        canary.source: None
        for record in records
        for canary in canaries_sent(record.observation, _scope(record, calls, startup), context)
    }
    named = f" (of {', '.join(sources)})" if sources and "canary_sent" in hit.rule.all else ""
    evidence = tuple(dict.fromkeys(shown_line(record.observation.line) for record in records))[:MAX_EVIDENCE]
    seen = f"Seen: {first.action}{tried} {where}{named}"
    return from_rule(hit.rule, tool, str(first.capability), seen, evidence, tuple(hit.targets)[:MAX_KEPT_TARGETS])


def shown_line(line: str) -> str:
    """Return a line of the trace as a report may show it: without what a key of the kernel's keyrings holds."""
    return (_QUOTED.sub('"…"', line) if _KEYS.search(line) else line)[:MAX_LINE]


def _scope(record: ProbeObservation, calls: Sequence[ProbeCall], startup: DeclaredScope) -> DeclaredScope:
    return startup if record.call is None else calls[record.call].scope


def _compare_calls(
    tool: str, hits: Mapping[str, RuleMatch], calls: Sequence[ProbeCall], numbers: Sequence[int], rulebook: Rulebook
) -> list[ProbeFinding]:
    """Find what happens with some arguments only, and what happens only when the same arguments are sent again."""
    found = []
    first = {calls[number].key: number for number in reversed(numbers)}
    for hit in hits.values():
        during = {record.call for record in hit.records}
        late = [n for n in numbers if n in during and first[calls[n].key] != n and first[calls[n].key] not in during]
        with_it = {calls[n].label for n in numbers if n in during}
        without = {calls[n].label for n in numbers if n not in during} - with_it
        if late:
            name, when = "differs-after-calls", f"not in call 1, but in call {numbers.index(late[0]) + 1}"
        elif without and with_it and during != {numbers[0]}:  # what is set up once is done in the first call
            name = "differs-between-inputs"
            when = f"with {', '.join(sorted(with_it))}, not with {', '.join(sorted(without))}"
        else:
            continue
        seen, message = hit.records[0].observation, f"{hit.rule.id}: {when}"
        found.append(from_rule(rulebook.get(name), tool, str(seen.capability), message, (shown_line(seen.line),)))
    return list({each.rule: each for each in reversed(found)}.values())


def group(findings: Sequence[ProbeFinding]) -> tuple[ProbeFinding, ...]:
    """Return findings with those that say the same of several tools as one, which names them all."""
    found: dict[tuple[str, str | None, str], ProbeFinding] = {}
    for each in findings:
        key = (each.rule, each.capability, each.message)
        first = found.get(key)
        found[key] = each if first is None else replace(first, others=(*first.others, each.tool))
    return tuple(found.values())


def order(findings: Sequence[ProbeFinding]) -> tuple[ProbeFinding, ...]:
    return tuple(sorted(findings, key=lambda found: found.severity != "high"))
