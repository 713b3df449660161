"""What a probe tells: one value, for people and for programs alike. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxy.trace.capability import Capability

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.declared_scope import DeclaredScope
    from proxy.probe.findings import Finding, Profile
    from proxy.probe.observation_facts import ProbeObservation, RunContext

MAX_TARGETS = 20


@dataclass(frozen=True, slots=True)
class CallResult:
    """One call that was made, and how it ended: ok, error, refused, timeout or gone."""

    label: str
    outcome: str

    def data(self) -> JsonObject:
        """Return it as JSON."""
        return {"input": self.label, "outcome": self.outcome}


@dataclass(frozen=True, slots=True)
class ToolReport:
    """One tool: what it declares, and what it was seen to do."""

    name: str
    declared: DeclaredScope
    observed: JsonObject
    calls: tuple[CallResult, ...]

    def data(self) -> JsonObject:
        """Return it as JSON."""
        return {
            "name": self.name,
            "declared": self.declared.data(),
            "observed": self.observed,
            "calls": [call.data() for call in self.calls],
        }


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """All that a probe found out about one server."""

    server: JsonObject
    tools: tuple[ToolReport, ...]
    startup: JsonObject
    findings: tuple[Finding, ...]
    trace: JsonObject
    manifest: tuple[JsonObject, ...] = ()
    profiles: dict[str, Profile] = field(default_factory=dict)
    problem: str | None = None
    """Why not everything was probed."""
    note: str | None = None
    """What this report does not tell by its nature."""

    def data(self) -> JsonObject:
        """Return it as one JSON object."""
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
        """Return the severity of the worst finding."""
        severities = {found.severity for found in self.findings}
        return "high" if "high" in severities else "info" if severities else None


def sum_up(records: Iterable[ProbeObservation], context: RunContext) -> JsonObject:
    """Return what was done by capability: to what, and how often; reading what is not of the home is only counted."""
    found: dict[str, dict[str, int]] = {}
    counts: dict[str, int] = {}
    for record in records:
        observation = record.observation
        kind = str(observation.capability)
        counts[kind] = counts.get(kind, 0) + 1
        target = context.target(observation)
        if observation.capability is Capability.FS_READ and not (target.startswith("~") and observation.ok):
            continue
        found.setdefault(kind, {})[target] = 1
    return {
        kind: {"count": count, "targets": list(found.get(kind, {}))[:MAX_TARGETS]}
        for kind, count in sorted(counts.items())
    }


def order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Put the worst first, and keep the rest as it came."""
    return tuple(sorted(findings, key=lambda found: found.severity != "high"))
