"""Turns observations into findings and a report: applies the rules, and compares one run with another. Pure."""

from __future__ import annotations

import posixpath
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from proxy.gate.tool_descriptions import find_hidden
from proxy.gate.tool_pins import changed_fields, print_tool
from proxy.probe.observation_facts import ProbeObservation, RunContext, canaries_sent, facts
from proxy.trace.capability import Capability

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.declared_scope import DeclaredScope
    from proxy.probe.rulebook import ProbeRule, Rulebook, Severity

MAX_EVIDENCE = 5
MAX_TARGETS = 6
MAX_SUMMED = 20
MAX_LINE = 400


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """One finding. `tool` is None for the server itself, at start-up or at the end."""

    tool: str | None
    rule: str
    severity: Severity
    capability: str | None
    message: str
    evidence: tuple[str, ...] = ()

    def data(self) -> JsonObject:
        return {**asdict(self), "evidence": list(self.evidence)}


def from_rule(
    rule: ProbeRule, tool: str | None, capability: str | None, seen: str = "", evidence: tuple[str, ...] = ()
) -> ProbeFinding:
    message = f"{rule.description} {seen}" if seen else rule.description
    return ProbeFinding(tool, rule.id, rule.severity, capability, message, evidence)


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
        if not _counts(record):
            continue
        true, target = facts(record, scope, context), context.target(record.observation)
        path = context.tilde(record.observation.path or "")
        for rule in rulebook.rules:
            if rule.speaks_of(record, path, true):
                hits.setdefault(rule.id, RuleMatch(rule)).targets.setdefault(target, []).append(record)
    # For the same target only the more specific rule is reported.
    for hit in list(hits.values()):
        for weaker in hit.rule.supersedes:
            for target in hit.targets:
                if weaker in hits:
                    hits[weaker].targets.pop(target, None)
    return {name: hits[name] for name in (rule.id for rule in rulebook.rules) if name in hits and hits[name].targets}


def _counts(record: ProbeObservation) -> bool:
    # Attempts count, except for looking at what does not exist, or creating what does: programs do that all the time.
    missing = record.observation.error in ("ENOENT", "ENOTDIR", "ENXIO")
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
    evidence = tuple(dict.fromkeys(record.observation.line[:MAX_LINE] for record in records))[:MAX_EVIDENCE]
    return from_rule(hit.rule, tool, str(first.capability), f"Seen: {first.action}{tried} {where}{named}", evidence)


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
        found.append(from_rule(rulebook.get(name), tool, str(seen.capability), message, (seen.line[:MAX_LINE],)))
    return list({each.rule: each for each in reversed(found)}.values())


def judge_manifest(
    tools: Sequence[JsonObject], known: Mapping[str, JsonObject] | None, rulebook: Rulebook
) -> list[ProbeFinding]:
    """Check the tools' definitions, and compare them with those `known` from when they were last accepted."""
    hidden, changed = rulebook.get("hidden-characters"), rulebook.get("manifest-changed")
    hidden_in = {str(tool.get("name")): find_hidden(tool)[:MAX_EVIDENCE] for tool in tools}
    found = [from_rule(hidden, name, None, evidence=where) for name, where in hidden_in.items() if where]
    if known is None:
        return found
    now = {str(tool.get("name")): tool for tool in tools}
    changes = {name: _changes(known.get(name), now.get(name)) for name in dict.fromkeys([*now, *known])}
    return found + [from_rule(changed, name, None, change) for name, change in changes.items() if change is not None]


def _changes(before: JsonObject | None, after: JsonObject | None) -> str | None:
    if before is None:
        return "Seen: the tool is new"
    if after is None:
        return "Seen: the tool is gone"
    fields = changed_fields(print_tool(before), print_tool(after))
    return f"Seen: changed in {', '.join(fields)}" if fields else None


# What a tool was observed to do: hosts or programs by capability.
type Profile = dict[str, list[str]]


def profile(records: Iterable[ProbeObservation], context: RunContext) -> Profile:
    """Summarise observations so that two runs can be compared: no reads, and no names made up for one run."""
    found: dict[str, set[str]] = {}
    for record in records:
        observation = record.observation
        kind, absent = observation.capability, observation.capability is Capability.IPC_UNIX and not observation.ok
        # Every program reads files all the time: in a profile they would make every run look different.
        if kind is Capability.FS_READ or absent or not _counts(record):
            continue
        targets = found.setdefault(str(kind), set())
        if kind in (Capability.NET_CONNECT, Capability.NET_DNS):
            targets.add(observation.name or context.host(observation.peer or ""))
        elif kind is Capability.PROC_EXEC:
            targets.add(posixpath.basename(observation.path or ""))
    return {name: sorted(targets) for name, targets in sorted(found.items())}


def judge_profiles(
    now: Mapping[str, Profile], known: Mapping[str, Profile] | None, rulebook: Rulebook
) -> list[ProbeFinding]:
    """Compare what tools do with what they did when last accepted; a tool that is not `known` is not compared."""
    found = []
    for tool, seen in now.items():
        before = (known or {}).get(tool, seen)
        new = {name: sorted(set(targets) - set(before.get(name, ()))) for name, targets in seen.items()}
        news = {name: targets for name, targets in new.items() if targets or name not in before}
        if news:
            text = "; ".join(f"{name} {', '.join(new[:MAX_TARGETS])}".rstrip() for name, new in news.items())
            found.append(from_rule(rulebook.get("behaviour-changed"), tool or None, next(iter(news)), f"Seen: {text}"))
    return found


@dataclass(frozen=True, slots=True)
class CallResult:
    """One call, and its outcome: ok, error, refused, timeout or gone."""

    label: str
    outcome: str


@dataclass(frozen=True, slots=True)
class ToolReport:
    name: str
    declared: DeclaredScope
    observed: JsonObject
    calls: tuple[CallResult, ...]

    def data(self) -> JsonObject:
        return {
            "name": self.name,
            "declared": self.declared.data(),
            "observed": self.observed,
            "calls": [{"input": call.label, "outcome": call.outcome} for call in self.calls],
        }


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The result of one probe. `problem`: why it is incomplete; `note`: what it cannot show by its nature."""

    server: JsonObject
    tools: tuple[ToolReport, ...]
    startup: JsonObject
    findings: tuple[ProbeFinding, ...]
    trace: JsonObject
    manifest: tuple[JsonObject, ...] = ()
    profiles: dict[str, Profile] = field(default_factory=dict)
    problem: str | None = None
    note: str | None = None

    def data(self) -> JsonObject:
        return {
            "server": self.server,
            "tools": [tool.data() for tool in self.tools],
            "startup": self.startup,
            "findings": [found.data() for found in self.findings],
            "trace": self.trace,
            "problem": self.problem,
            "note": self.note,
        }

    def worst(self) -> str | None:
        severities = {found.severity for found in self.findings}
        return "high" if "high" in severities else "info" if severities else None


def sum_up(records: Iterable[ProbeObservation], context: RunContext) -> JsonObject:
    """Return what was done by capability: to what, and how often."""
    found: dict[str, dict[str, None]] = {}
    counts: Counter[str] = Counter()
    for record in records:
        observation = record.observation
        kind = str(observation.capability)
        counts[kind] += 1
        target = context.target(observation)
        # Reads outside of the home are only counted: they are mostly libraries.
        if observation.capability is not Capability.FS_READ or (target.startswith("~") and observation.ok):
            found.setdefault(kind, {})[target] = None
    return {
        kind: {"count": count, "targets": list(found.get(kind, {}))[:MAX_SUMMED]}
        for kind, count in sorted(counts.items())
    }


def order(findings: Sequence[ProbeFinding]) -> tuple[ProbeFinding, ...]:
    return tuple(sorted(findings, key=lambda found: found.severity != "high"))
