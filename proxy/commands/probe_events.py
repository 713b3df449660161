"""Writes the results of a probe to the audit log, masked like everything that is recorded."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from proxy.audit.restored import open_run_log
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.gate.event_recorder import RECORDED
from proxy.runtime.preload import open_masker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxy.config import Settings
    from proxy.core.model import JsonObject
    from proxy.probe.report import ProbeReport
    from proxy.redact.reloader import LiveMasker


# Of a report's secrets; its names and addresses are what it is about.
REPORTED = ("secrets", "custom")
MIN_VALUE = 6


def masked(settings: Settings, report: JsonObject, env: Mapping[str, str]) -> JsonObject:
    """Return a report as it may be shown: without secrets, and without the values of `env`."""
    masker = open_masker(settings.state_dir)
    masker.prepare(())()
    shown, _ = masker.mask(report, REPORTED)
    assert isinstance(shown, dict)
    # A value that was given for the server alone has no place in a report, whether it looks like a secret or not.
    values = {value: f"${name}" for name, value in env.items() if len(value) >= MIN_VALUE and "{" not in value}
    return dict(_without(shown, values)) if values else shown


def _without(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for secret, name in values.items():
            value = value.replace(secret, name)
        return value
    if isinstance(value, dict):
        return {key: _without(inner, values) for key, inner in value.items()}
    return [_without(inner, values) for inner in value] if isinstance(value, list) else value


def record(settings: Settings, name: str, report: ProbeReport, now: float) -> None:
    """Write one event for the probe and one for each finding. Raises AuditUnavailableError."""
    masker = open_masker(settings.state_dir)
    masker.prepare(())()
    with contextlib.closing(open_run_log(settings)) as log:
        for event in _events(name, report, now, masker):
            log.record_later(event)


def _events(name: str, report: ProbeReport, now: float, masker: LiveMasker) -> Iterator[AuditEvent]:
    # As the session of all its events, it ties the findings to their probe.
    probe_id = new_id()

    def make(kind: str, detail: dict[str, Any], **fields: Any) -> AuditEvent:
        # Evidence quotes what the server read and sent: file contents and canaries, but also real secrets of --env.
        masked, found = masker.mask(detail, RECORDED)
        assert isinstance(masked, dict)
        return AuditEvent(
            event_id=new_id(),
            kind=kind,
            time=now,
            server=name,
            session=probe_id,
            transport=str(report.server["transport"]),
            redactions=found,
            detail=masked,
            **fields,
        )

    summary = {
        "tools": {tool.name: tool.observed for tool in report.tools},
        "declared": {tool.name: tool.declared.data() for tool in report.tools},
        "findings": len(report.findings),
        "trace": report.trace,
        "startup": report.startup,
        "problem": report.problem,
    }
    yield make("probed", summary, outcome=report.worst() or "clean")
    for found in report.findings:
        for tool in found.tools:  # one event of each: people look for a tool's findings
            yield make("finding", found.data(), tool=tool, rule=found.rule, outcome=found.severity)
