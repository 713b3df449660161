"""What one probe saw becomes a report: hostile calls prove something of a tool, and are not what it does."""

from __future__ import annotations

from proxy.probe.declared_scope import DeclaredScope
from proxy.probe.findings import ProbeCall
from proxy.probe.hostile import Attempt
from proxy.probe.judgement import JudgedTool, ProbeLog, describe_server
from proxy.probe.observation_facts import RunContext
from proxy.probe.observer import Observer
from tests.probe.test_findings import record


def test_hostile_calls_are_judged_by_their_proof_alone() -> None:
    context = RunContext("/h", "/p", "/w")
    log = ProbeLog(context, DeclaredScope(), Observer(context, "/w", lambda: 0.0))
    log.observer.reader.lines = 1
    log.calls = [ProbeCall("t", label, "{}", DeclaredScope()) for label in ("all", "hostile")]
    log.honest = 1
    log.attempts = {1: Attempt({}, "title", "a command of a shell", "ran", "qm")}
    log.observer.records += [
        record(0, "fs.read", path="/w/notes"),
        record(1, "proc.exec", "exec", path="/bin/echo", argv=("/bin/echo", "qm")),
    ]
    report = log.report({}, [], [JudgedTool("t", DeclaredScope(), ())], None, None, starter=None)
    assert [(each.tool, each.rule) for each in report.findings] == [("t", "argument-executed")]
    assert "proc.exec" not in report.tools[0].observed
    assert list(report.profiles["t"]) == list(report.profiles[""])
    assert [each.call for each in log.honest_records()] == [0]


def test_a_server_is_described() -> None:
    described = describe_server("s", ["a", "b"], {"serverInfo": 3}, {"resources": [{"uri": "x"}], "prompts": []})
    assert described == {
        "name": "s",
        "command": ["a", "b"],
        "transport": "stdio",
        "info": {},
        "resources": ["x"],
        "prompts": [],
    }
