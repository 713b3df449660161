"""Writes the results of a probe to the audit log, masked like everything that is recorded."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from proxy.audit.restored import open_run_log
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.gate.event_recorder import RECORDED
from proxy.runtime.wiring import open_masker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.config import Settings
    from proxy.probe.findings import ProbeReport
    from proxy.redact.reloader import LiveMasker


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
        yield make("finding", found.data(), tool=found.tool, rule=found.rule, outcome=found.severity)
