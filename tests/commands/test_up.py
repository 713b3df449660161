"""`interlock up`: what stops it, and what it says when it runs."""

from __future__ import annotations

import inspect
import json
import re
import signal
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.commands.up import _announce, _announce_console, own_command, up
from proxy.config import Settings
from proxy.identity.token_file import OperatorTokens
from proxy.system.run_file import RunningProxy
from proxy.system.terminal_text import display_width
from tests.commands.conftest import Run, complaint
from tests.support.harness import environment
from tests.support.processes import start_module
from tests.support.terminal_screen import Screen
from tests.support.timeouts import PATIENCE

RUNNING = RunningProxy(1, "127.0.0.1:8080", "regular", "/s/ca/ca.pem", "p.yaml", "v", 0.0)


def test_every_setting_has_its_flag() -> None:
    assert set(inspect.signature(up).parameters) == {*Settings.model_fields, "config", "as_json", "take_over"} - {
        "trace"
    }  # of `run` alone


@pytest.mark.parametrize(
    ("flag", "value", "part"),
    [
        ("--listen", "nonsense", "HOST:PORT"),
        ("--mode", "local", "reverse:URL"),
        ("--body-limit", "lots", "16MiB"),
        ("--agent-auth", "maybe", "'required'"),
        ("--config", "gone.yaml", "does not exist"),
    ],
)
def test_a_wrong_setting_stops_the_start(flag: str, value: str, part: str, run: Run) -> None:
    assert part in complaint(run("up", flag, value))


@pytest.mark.parametrize(
    ("flag", "value", "part"),
    [
        ("--policy", "gone.yaml", "gone.yaml: no such file"),
        ("--upstream-ca", "gone.pem", "upstream_ca: 'gone.pem'"),
        ("--listen", "192.0.2.1:1", "setting listen = '192.0.2.1:1'"),
    ],
)
def test_a_setting_that_cannot_be_carried_out_stops_the_start(
    flag: str, value: str, part: str, run_process: Run
) -> None:
    done = run_process("up", "--log-level", "error", flag, value)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert part in done.stderr


def test_a_bad_policy_stops_the_start_with_file_and_line(run_process: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 1\ndefault: allow\nrules:\n  - id: x\n    action: explode\n")
    assert "p.yaml:4:" in complaint(run_process("up", "--policy", "p.yaml"))


def test_a_broken_audit_log_stops_the_start(run_process: Run, tmp_path: Path) -> None:
    log = tmp_path / "state" / "log" / "events.db"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"garbage " * 500)
    free = [f"--{name}=127.0.0.1:0" for name in ("listen", "health-listen", "console-listen")]
    assert "events.db cannot be opened" in complaint(run_process("up", *free))


def test_a_running_proxy_says_what_to_export(capsys: pytest.CaptureFixture[str]) -> None:
    _announce(RUNNING)
    out = capsys.readouterr().out
    for part in (
        "HTTPS_PROXY=http://127.0.0.1:8080",
        "SSL_CERT_FILE=/s/ca/bundle.pem",
        "NODE_EXTRA_CA_CERTS=/s/ca/ca.pem",
        "NODE_USE_ENV_PROXY=1",
    ):
        assert part in out


def test_it_says_what_to_type_next(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [".venv/bin/interlock", "up"])
    _announce(RUNNING)
    out = capsys.readouterr().out
    for word in ("doctor", "call URL", "exec -- AGENT"):
        assert f"  .venv/bin/interlock {word} " in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_command_is_named_as_the_shell_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "a b" / "interlock"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert own_command(str(script)) == f"'{script}'"
    assert own_command("/usr/lib/python3/cli.py") == "interlock"
    monkeypatch.setenv("PATH", str(script.parent))
    assert own_command(str(script)) == "interlock"


def test_an_address_for_all_is_shown_as_one_that_can_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    _announce(RunningProxy(1, "0.0.0.0:1", "regular", "c", "p", "v", 0.0))
    assert "HTTPS_PROXY=http://127.0.0.1:1\n" in capsys.readouterr().out


def test_other_modes_need_no_exports(capsys: pytest.CaptureFixture[str]) -> None:
    _announce(RunningProxy(1, "127.0.0.1:1", "reverse:https://x", "c", "p", "v", 0.0))
    out = capsys.readouterr().out
    assert "reverse:https://x" in out
    assert "export" not in out


@pytest.mark.parametrize(("link", "shown"), [("always", True), ("never", False), ("auto", False)])
def test_a_link_to_the_console_is_printed_where_it_is_wanted(
    link: Any, shown: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    OperatorTokens(tmp_path).ensure()
    running = replace(RUNNING, console="http://127.0.0.1:8090")
    _announce_console(running, Settings(state_dir=tmp_path, console_link=link))
    out = capsys.readouterr().out
    assert out.startswith("Console: http://127.0.0.1:8090")
    assert ("/login#ill_" in out) is shown
    _announce_console(RUNNING, Settings(state_dir=tmp_path, console_link=link))
    assert capsys.readouterr().out == ""


LONG = {"name": f"read_{'x' * 90}日本", "arguments": {}}
CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": LONG}).encode()
REFUSING = "version: 1\ndefault: deny\nrules: []\n"
SPOILT = "version: 1\ndefault: deny\nrules:\n  - {id: a, acton: deny}\n"


def replace_text(file: Path, text: str) -> None:
    """Replace a file at once, so that no worker reads half of it."""
    new = file.with_name("new")
    new.write_text(text)
    new.replace(file)


def test_on_a_terminal_a_decision_is_one_line_of_80_columns_and_so_is_a_bad_reload(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(REFUSING)
    words = ["up", "--listen", "127.0.0.1:0", "--mode", "reverse:http://127.0.0.1:9", "--policy", str(policy)]
    words += ["--health-listen", "off", "--console-listen", "off", "--state-dir", str(tmp_path / "s"), "--workers", "2"]
    with (
        Screen(80) as screen,
        start_module(
            "proxy.cli",
            *words,
            env=environment({"TERM": "xterm", "NO_COLOR": ""}),
            stdout=screen.stream,
            stderr=screen.stream,
        ) as process,
    ):
        try:
            screen.read_until(lambda lines: any("is listening on" in line for line in lines))
            port = int(re.findall(r"listening on 127\.0\.0\.1:(\d+)", "\n".join(screen.lines))[0])
            headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            request = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", CALL, headers)
            assert b"not executed" in urllib.request.urlopen(request, timeout=PATIENCE).read()
            lines = screen.read_until(lambda lines: any(" deny " in line for line in lines))
            (line,) = (line for line in lines if " deny " in line)
            assert re.match(r"\d\d:\d\d:\d\d deny +agent +127\.0\.0\.1:9 +read_x+…x+日本 ", line)
            assert line.endswith("default_deny")
            assert display_width(line) <= 80
            assert "\x1b[31mdeny" in screen.raw
            replace_text(policy, SPOILT)
            screen.read_until(lambda lines: any("stays in force" in line for line in lines))
            replace_text(policy, REFUSING)
            lines = screen.read_until(lambda lines: any("policy in force" in line for line in lines))
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    (line,) = (line for line in lines if "policy.yaml:" in line)
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d error +.*/policy\.yaml:4:\d+: .*'action'.*; the old policy stays in force", line
    )
    assert sum("in force" in line for line in lines) == 2
