"""`interlock exec`: the command and nothing else runs; tests/confine/test_launch.py has real clients in it."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.commands.conftest import Run
from tests.harness import environment
from tests.processes import start_module


def test_the_command_is_the_process_itself(tmp_path: Path) -> None:
    script = "echo $$; echo ${INTERLOCK_LOG_LEVEL-unset} $SSL_CERT_FILE; read line; exit 7"
    state = ["--listen", "127.0.0.1:9", "--state-dir", str(tmp_path)]
    words = ["exec", *state, "--", "sh", "-c", script]
    environ = environment({"INTERLOCK_LOG_LEVEL": "error"})
    with start_module("proxy.cli", *words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        assert int(process.stdout.readline()) == process.pid
        assert process.stdout.readline().decode() == f"unset {tmp_path}/ca/bundle.pem\n"
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.wait(20) == 7
    with start_module("proxy.cli", *words[:-3], "sleep", "60", env=environ) as process:
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--", "true"], 125, "interlock exec: no proxy runs on "),
        (["--listen", "127.0.0.1:9", "--", "no-such-program"], 127, "interlock exec: cannot start 'no-such-program'"),
        (["--listen", "127.0.0.1:9", "--", "/"], 126, "interlock exec: cannot start '/': is a directory"),
        (["--agent", "a", "--token-file", "gone", "--listen", "127.0.0.1:9", "--", "true"], 125, "interlock exec: "),
    ],
)
def test_what_is_not_started_is_told_by_message_and_exit_code(words: list[str], code: int, said: str, run: Run) -> None:
    done = run("exec", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(said)
