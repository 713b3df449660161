"""A probe's events; that they are masked is seen in test_probe.py on a live server."""

from __future__ import annotations

from pathlib import Path

from proxy.audit.local_log_files import read_logs
from proxy.commands.probe_events import record
from proxy.config import load_settings
from proxy.probe.declared_scope import DeclaredScope
from proxy.probe.findings import ProbeFinding
from proxy.probe.report import ProbeReport, ToolReport
from tests.support.harness import seed_cache

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_a_probe_and_its_findings_are_recorded_masked(tmp_path: Path) -> None:
    seed_cache(tmp_path)
    settings = load_settings({"state_dir": tmp_path}).settings
    tool = ToolReport("t", DeclaredScope(), {"net.connect": {"count": 1, "targets": ["x:80"]}}, ())
    found = ProbeFinding("t", "canary-read", "high", "fs.read", "It reads.", (f"write({TOKEN!r})",))
    report = ProbeReport({"name": "s", "transport": "stdio"}, (tool,), {}, (found,), {"lines": 3})
    record(settings, "s", report, 5.0)
    probed, finding = read_logs(tmp_path)
    assert (probed["kind"], probed["server"], probed["outcome"]) == ("probed", "s", "high")
    assert probed["detail"]["tools"]["t"]["net.connect"]["targets"] == ["x:80"]
    assert probed["detail"]["declared"]["t"]["network"] is False
    assert (finding["kind"], finding["tool"], finding["rule"], finding["outcome"]) == (
        "finding",
        "t",
        "canary-read",
        "high",
    )
    assert TOKEN not in str(finding)
    assert finding["redactions"]
