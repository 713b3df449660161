"""`interlock policy decide`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.agent.client_hooks import install
from proxy.agent.clients import CLAUDE_HOOK
from proxy.runtime import hook_decision
from tests.agent.test_hook_formats import CLAUDE, CURSOR
from tests.commands.conftest import Done, Run
from tests.support.harness import seed_cache

type Ask = Callable[..., Done]


@pytest.fixture
def ask(run: Run, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run it with a call on stdin."""

    def asked(sent: object, *options: str) -> Done:
        text = sent if isinstance(sent, str) else json.dumps(sent)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return run("policy", "decide", "--stdin", *options)

    return asked


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {**CLAUDE, "tool_input": {"command": command}, **more}


def recorded(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("audit", "query", "--json").stdout.splitlines()]


@pytest.mark.parametrize(
    "sent",
    [
        bash("cat /etc/shadow"),
        bash("cat ~/.ssh/id_rsa"),
        bash("echo x >> ~/.bashrc"),
        bash("rm -rf /"),
        bash("cat shadow", cwd="/etc"),
        {**CLAUDE, "tool_name": "Read", "tool_input": {"file_path": "/etc/shadow"}},
        {**CLAUDE, "tool_name": "Write", "tool_input": {"file_path": "/home/me/.ssh/authorized_keys", "content": "x"}},
        {**CLAUDE, "tool_name": "WebFetch", "tool_input": {"url": "http://169.254.169.254/", "prompt": "x"}},
        {**CLAUDE, "tool_name": "mcp__files__read_file", "tool_input": {"path": "/etc/shadow"}},
    ],
)
def test_claude_code_is_told_no_in_its_own_format(sent: dict[str, Any], ask: Ask) -> None:
    done = ask(sent, "--format", "claude-code")
    assert done.returncode == 0
    said = json.loads(done.stdout)["hookSpecificOutput"]
    assert (said["hookEventName"], said["permissionDecision"]) == ("PreToolUse", "deny")
    assert "Audit id: " in said["permissionDecisionReason"]


@pytest.mark.parametrize(
    "sent",
    [
        bash("npm test"),
        {**CLAUDE, "tool_name": "Read", "tool_input": {"file_path": "/home/me/project/main.py"}},
        {**CLAUDE, "tool_name": "TodoWrite", "tool_input": {"todos": []}},
    ],
)
def test_what_policy_allows_is_left_to_the_clients_own_permissions(sent: dict[str, Any], ask: Ask) -> None:
    done = ask(sent, "--format", "claude-code")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_cursor_is_answered_in_its_own_format(ask: Ask) -> None:
    shell = {**CURSOR, "hook_event_name": "beforeShellExecution", "cwd": "/p"}
    denied = ask({**shell, "command": "cat /etc/shadow"}, "--format", "cursor")
    assert (denied.returncode, json.loads(denied.stdout)["permission"]) == (0, "deny")
    allowed = ask({**shell, "command": "ls"}, "--format", "cursor")
    assert (allowed.returncode, json.loads(allowed.stdout)) == (0, {"permission": "allow"})


def test_every_decision_is_in_the_audit_trail(ask: Ask, run: Run) -> None:
    ask(bash("cat /etc/shadow"), "--format", "claude-code", "--agent", "me")
    said = json.loads(ask({"tool": "x", "arguments": {"y": 1}}).stdout)
    allowed, denied = recorded(run)
    assert (denied["transport"], denied["server"], denied["tool"], denied["decision"]) == (
        *("hook", "claude-code", "Bash"),
        "deny",
    )
    assert (denied["agent"], denied["session"]) == ("me", "abc123")
    assert (allowed["call_id"], allowed["decision"]) == (said["audit_id"], "allow")
    assert run("audit", "verify").returncode == 0


def test_what_would_be_masked_or_proposed_is_denied(ask: Ask, run: Run, tmp_path: Path) -> None:
    secret = "ghp_" + "0123456789abcdefghijklmnopqrstuvwxyz"  # made up
    done = ask({"tool": "Write", "arguments": {"content": secret}})
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (2, "secret_found")
    assert secret not in json.dumps(recorded(run))
    rules = tmp_path / "rules.yaml"
    rules.write_text("version: 1\ndefault: allow\nrules:\n  - {id: two, action: two_phase, tools: [Bash]}\n")
    done = ask({"tool": "Bash"}, "--policy", str(rules))
    said = json.loads(done.stdout)
    assert (done.returncode, said["reason"], said["rule"]) == (2, "two_phase_required", "two")


@pytest.mark.parametrize(
    "sent", ["", "{", "[]", '"x"', '{"tool": "a", "tool": "b"}', json.dumps({"tool": "x", "z": 1})]
)
@pytest.mark.parametrize("name", ["claude-code", "cursor", "plain"])
def test_what_cannot_be_read_blocks(sent: str, name: str, ask: Ask) -> None:
    done = ask(sent, "--format", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert "so it is blocked" in done.stderr


def test_every_failure_blocks(ask: Ask, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = {"tool": "x"}
    assert ask(fine).returncode == 0
    bad = tmp_path / "bad.yaml"
    bad.write_text("version: 1\nrulez: []\n")
    state = tmp_path / "file"
    state.write_text("")
    for options in (
        ["--format", "emacs"],
        ["--policy", str(bad)],
        ["--policy", str(tmp_path / "none.yaml")],
        ["--state-dir", str(state)],
    ):
        assert ask(fine, *options).returncode == 2, options
    assert run("policy", "decide").returncode == 2
    monkeypatch.setenv("INTERLOCK_AGENT_AUTH", "required")
    assert ask(fine).returncode == 2
    monkeypatch.delenv("INTERLOCK_AGENT_AUTH")
    monkeypatch.setattr(hook_decision, "MAX_INPUT", 5)
    assert ask(fine).returncode == 2


def test_a_log_that_cannot_be_written_blocks(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_AUDIT_LOG_LIMIT", "1")
    done = ask({"tool": "x"})
    assert done.returncode == 2


def process(*options: str, stdin: Any, stdout: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "proxy.cli", "policy", "decide", "--stdin", *options]
    return subprocess.run(words, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


def test_a_client_that_never_ends_its_question_is_blocked_in_time(environment: None) -> None:
    script = "from proxy.runtime import hook_decision; hook_decision.SECONDS = 0.1; from proxy.cli import main; main()"
    read, write = os.pipe()
    words = [sys.executable, "-c", script, "policy", "decide", "--stdin"]
    done = subprocess.run(words, stdin=read, capture_output=True, text=True, check=False)
    os.close(read)
    os.close(write)
    assert done.returncode == 2
    assert "took more than 0.1 seconds" in done.stderr


def test_a_closed_stdout_blocks(environment: None, tmp_path: Path) -> None:
    call = tmp_path / "call.json"
    call.write_text(json.dumps(bash("cat /etc/shadow")))
    seed_cache(tmp_path / "state")
    read, write = os.pipe()
    os.close(read)
    with call.open() as stdin:
        assert process("--format", "claude-code", stdin=stdin, stdout=write).returncode == 2
    os.close(write)


def test_the_installed_hook_works_as_the_client_runs_it(environment: None, tmp_path: Path) -> None:
    settings = json.loads(install("{}", [sys.executable, "-m", "proxy.cli"], CLAUDE_HOOK).text)
    command = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    sent = json.dumps(bash("cat /etc/shadow"))
    seed_cache(tmp_path / "state")
    done = subprocess.run(["/bin/sh", "-c", command], input=sent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"


SEQUENCE = """
version: 1
default: allow
rules:
  - id: write-then-run
    action: deny
    tools: [bash]
    when: {after: {tools: [write], where: {arg: file_path, ends_with: .sh}}, within: 10m}
"""


def test_a_hook_remembers_what_came_before(ask: Ask, tmp_path: Path) -> None:
    """Each call is decided by a process of its own: what came before is in the store."""
    policy = tmp_path / "sequence.yaml"
    policy.write_text(SEQUENCE)
    shell = {"tool": "bash", "arguments": {"command": "sh x.sh"}}

    def decided(sent: dict[str, Any]) -> str:
        said: str = json.loads(ask(sent, "--policy", str(policy)).stdout)["decision"]
        return said

    assert decided(shell) == "allow"
    assert decided({"tool": "write", "arguments": {"file_path": "notes.txt"}}) == "allow"
    assert decided(shell) == "allow"
    assert decided({"tool": "write", "arguments": {"file_path": "x.sh"}}) == "allow"
    assert decided(shell) == "deny"
    other = ask(shell, "--policy", str(policy), "--agent", "another")
    assert json.loads(other.stdout)["decision"] == "allow"
