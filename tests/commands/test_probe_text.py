"""The report on a terminal: what several tools share is told once, and a server's text drives no terminal."""

from __future__ import annotations

import pytest

from proxy.commands.probe_text import print_report
from proxy.probe.declared_scope import DeclaredScope
from proxy.probe.findings import ProbeFinding
from proxy.probe.report import CallResult, ProbeReport, ToolReport

SHARED = ProbeFinding("a", "canary-read", "high", "fs.read", "It reads.", ("line",), (), ("b",))
OWN = ProbeFinding("b", "undeclared-exec", "high", "proc.exec", "It \x1b]0;starts\x07.")
START = ProbeFinding(None, "undeclared-listen", "high", "net.listen", "It waits.")


def test_findings_stand_where_they_belong(capsys: pytest.CaptureFixture[str]) -> None:
    tools = tuple(ToolReport(name, DeclaredScope(), {}, (CallResult("all", "ok"),)) for name in ("a", "b"))
    report = ProbeReport({"name": "s"}, tools, {}, (SHARED, OWN, START), {}, allowed=((OWN, "known"),))
    print_report(report.data())
    said = capsys.readouterr().out
    shared, _, rest = said.partition("\na  (1 ok)")
    assert "canary-read  It reads.  (a, b)" in shared
    assert rest.index("undeclared-exec") < rest.index("start-up and end") < rest.index("undeclared-listen")
    assert said.count("canary-read") == 1
    assert "3 findings: 3 high, 0 info, 1 accepted by the allow list" in said
    assert "\x1b]" not in said
