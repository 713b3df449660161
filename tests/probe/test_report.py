"""A report as a value, and as JSON."""

from __future__ import annotations

import json

from proxy.probe.declared_scope import DeclaredScope
from proxy.probe.findings import ProbeFinding
from proxy.probe.observation_facts import ProbeObservation, RunContext
from proxy.probe.report import CallResult, ProbeReport, ToolReport, sum_up
from proxy.trace.capability import Capability, Observation

HIGH = ProbeFinding("t", "canary-read", "high", "fs.read", "It reads.", ("line",))
INFO = ProbeFinding(None, "differs-between-inputs", "info", None, "It differs.")


def test_a_report_is_one_json_object() -> None:
    tool = ToolReport("t", DeclaredScope(read_only=True), {}, (CallResult("all", "ok"),))
    said = json.loads(json.dumps(ProbeReport({"name": "s"}, (tool,), {}, (HIGH,), {}).data()))
    assert {"server", "tools", "startup", "findings"} <= set(said)
    assert said["findings"] == [
        {
            "tool": "t",
            "rule": "canary-read",
            "severity": "high",
            "capability": "fs.read",
            "message": "It reads.",
            "tools": ["t"],
            "evidence": ["line"],
            "targets": [],
        }
    ]
    assert said["tools"][0]["declared"]["read_only"] is True


def test_the_worst_of_a_report() -> None:
    assert [ProbeReport({}, (), {}, found, {}).worst() for found in ((), (INFO,), (INFO, HIGH))] == [
        None,
        "info",
        "high",
    ]


def test_reading_is_told_of_the_home_and_counted_elsewhere() -> None:
    paths = ("/usr/lib/x.so", "/h/a", "/h/a")
    records = [ProbeObservation(Observation(Capability.FS_READ, "open", 1, 1.0, "", path=path), 0) for path in paths]
    assert sum_up(records, RunContext("/h", "/p")) == {"fs.read": {"count": 3, "targets": ["~/a"]}}
