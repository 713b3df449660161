"""The report of a probe, as values: what each tool declares, what it did, and what was found. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from proxy.probe.findings import order
from proxy.trace.capability import Capability

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.core.model import JsonObject
    from proxy.probe.comparison import Profile
    from proxy.probe.declared_scope import DeclaredScope
    from proxy.probe.findings import ProbeFinding
    from proxy.probe.observation_facts import ProbeObservation, RunContext

MAX_SUMMED = 20


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
    allowed: tuple[tuple[ProbeFinding, str], ...] = ()  # findings that the allow list excuses, each with the reason

    def data(self) -> JsonObject:
        return {
            "server": self.server,
            "tools": [tool.data() for tool in self.tools],
            "startup": self.startup,
            "findings": [found.data() for found in self.findings],
            "allowed": [{**found.data(), "reason": reason} for found, reason in self.allowed],
            "trace": self.trace,
            "problem": self.problem,
            "note": self.note,
        }

    def worst(self) -> str | None:
        severities = {found.severity for found in self.findings}
        return "high" if "high" in severities else "info" if severities else None


def add_findings(report: ProbeReport, found: Iterable[ProbeFinding], when: str) -> ProbeReport:
    """Return a report with the findings of another run as well, as far as they are new; `when` is how that differed."""
    known = {(each.rule, tool) for each in report.findings for tool in each.tools}
    new = [
        replace(each, message=f"{each.message} {when}")
        for each in found
        if any((each.rule, tool) not in known for tool in each.tools)
    ]
    return replace(report, findings=order((*report.findings, *new)))


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
