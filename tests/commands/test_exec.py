"""`interlock exec`: the command and nothing else runs; tests/confine/test_launch.py has real clients in it."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from proxy.vault.placeholder import make
from proxy.vault.vault_file import Bindings, Entry, EnvSource, VaultFile
from tests.commands.conftest import Run
from tests.support.harness import environment, seed_cache
from tests.support.processes import start_module
from tests.support.timeouts import PATIENCE

THERE = ["--listen", "127.0.0.1:9", "--ca-folder", "."]

TRAPS = "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done"


def ca_folder(folder: Path) -> Path:
    """Make a folder that looks like that of a CA."""
    for name in ("ca.pem", "bundle.pem", "node-proxy.cjs"):
        (folder / name).touch()
    return folder


def test_streams_signals_and_exit_code_are_the_commands(tmp_path: Path) -> None:
    script = "echo ${INTERLOCK_LOG_LEVEL-unset} $SSL_CERT_FILE; read line; exit 7"
    words = ["exec", "--listen", "127.0.0.1:9", "--ca-folder", str(ca_folder(tmp_path)), "--", "sh", "-c", script]
    environ = environment({"INTERLOCK_LOG_LEVEL": "error"})
    with start_module("proxy.cli", *words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline().decode() == f"unset {tmp_path}/bundle.pem\n"
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.wait(PATIENCE) == 7
    with start_module("proxy.cli", *words[:-3], "sleep", "60", env=environ) as process:
        process.terminate()
        assert process.wait(PATIENCE) == -signal.SIGTERM
    with start_module("proxy.cli", *words[:-1], TRAPS, env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 9


def test_the_command_finds_a_placeholder_where_the_caller_has_the_value(tmp_path: Path) -> None:
    made = make("gh")
    bindings = Bindings(hosts=("a.example",), variable="GH_TOKEN")
    VaultFile(tmp_path).add("gh", Entry(placeholder=made, source=EnvSource(variable="X"), bindings=bindings, added=1.0))
    words = ["--state-dir", str(tmp_path), "--listen", "127.0.0.1:9", "--ca-folder", str(ca_folder(tmp_path))]
    command = ["exec", *words, "--", "sh", "-c", "echo $GH_TOKEN"]
    with start_module("proxy.cli", *command, env=environment({"GH_TOKEN": "real"}), stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.read().decode() == f"{made}\n"


def test_the_command_ends_where_its_owner_is_killed(tmp_path: Path) -> None:
    words = ["exec", "--listen", "127.0.0.1:9", "--ca-folder", str(ca_folder(tmp_path)), "--", "sh", "-c"]
    script = "echo $$; exec sleep 600"
    with start_module("proxy.cli", *words, script, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout
        command = int(process.stdout.readline())
        process.kill()
        process.wait(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{command}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{command}").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", "true"], 125, "interlock exec: no proxy runs on "),
        (["--listen", "127.0.0.1:9", "--", "true"], 125, "interlock exec: there is no ca.pem in "),
        ([*THERE, "--", "no-such-program"], 127, "interlock exec: cannot start 'no-such-program'"),
        ([*THERE, "--", "/"], 126, "interlock exec: cannot start '/': is a directory"),
        (["--agent", "a", "--token-file", "gone", "--listen", "127.0.0.1:9", "--", "true"], 125, "interlock exec: "),
    ],
)
def test_what_is_not_started_is_told_by_message_and_exit_code(
    words: list[str], code: int, said: str, run: Run, tmp_path: Path
) -> None:
    ca_folder(tmp_path)
    done = run("exec", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(said)


def test_a_proxy_is_started_for_the_command_and_ends_with_it(run_process: Run, tmp_path: Path) -> None:
    seed_cache(tmp_path / "state")
    done = run_process("exec", "--up", "--", "sh", "-c", "echo $HTTPS_PROXY; curl -sS http://127.0.0.1:1/; exit 7")
    assert done.returncode == 7, done.stderr
    assert "interlock exec: the proxy saw no MCP call of agent 'agent'" in done.stderr
    url, answer = done.stdout.split("\n", 1)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
    assert "Bad Gateway" in answer or "502" in answer or "refused" in answer.lower()
    deadline = time.monotonic() + PATIENCE
    while (tmp_path / "state" / "run.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (tmp_path / "state" / "run.json").exists()
