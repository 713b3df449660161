"""What one probe saw becomes a report: hostile calls prove something of a tool, and are not what it does."""

from __future__ import annotations

from proxy.probe.declared_scope import DeclaredScope
from proxy.probe.findings import ProbeCall
from proxy.probe.hostile import Attempt
from proxy.probe.judgement import JudgedTool, ProbeLog, describe_server
from proxy.probe.observation_facts import RunContext
from proxy.probe.observer import Observer
from proxy.probe.texts import CallText
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


def leaks(text: str, *, honest: str = "ok", executes: bool = False) -> list[str]:
    context = RunContext("/h", "/p", "/w")
    log = ProbeLog(context, DeclaredScope(), Observer(context, "/w", lambda: 0.0))
    log.observer.reader.lines = 1
    log.calls = [ProbeCall("t", label, "{}", DeclaredScope(executes=executes)) for label in ("all", "hostile")]
    log.honest = log.judged = 1
    log.texts = [CallText(0, honest), CallText(1, text)]
    report = log.report({}, [], [JudgedTool("t", DeclaredScope(), ())], None, None, starter=None)
    return [each.rule for each in report.findings]


def test_a_credential_in_an_answer_to_a_malicious_caller_is_told_once() -> None:
    shown = f"Error: connect failed with password={'Xk9-pQz7-wLm3'}!"
    assert leaks(shown) == ["credential-shown"]
    assert leaks(shown, honest=shown) == ["credential-shown"]
    assert leaks("Error: connect failed") == []
    assert leaks(shown, executes=True) == []  # a command shows whatever it is asked for
    assert leaks("Your account needs immediate attention: https://x.example/verify") == []
