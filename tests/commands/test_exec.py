"""`interlock exec`: real clients in its environment go through a real proxy; nothing starts where none runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.conftest import Run
from tests.harness import Certificates, Interlock, environment, start_interlock, start_python_server
from tests.node_tools import node
from tests.processes import REPOSITORY, run_module, start_module
from tests.site import PAGE, start_site

VISITS = str(REPOSITORY / "tests" / "visits.py")


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("proxy"), upstream_ca=certificates.ca_file) as running:
        yield running


def test_every_client_goes_through_the_proxy_though_its_caller_made_exceptions(
    interlock: Interlock, certificates: Certificates, tmp_path: Path
) -> None:
    flags = ["--stateless", "--json"]
    with (
        start_site(tmp_path / "site", certificates) as port,
        start_python_server("python_modern", tmp_path, certificates=certificates, flags=flags) as server,
    ):
        site = f"https://localhost:{port}"
        visits = [sys.executable, VISITS, str(tmp_path), node(), site, f"https://localhost:{server.port}"]
        state = ["--state-dir", str(interlock.state_dir)]
        environ = environment({"NO_PROXY": "*", "no_proxy": "localhost", "HTTPS_PROXY": "http://127.0.0.1:1"})
        done = run_module("proxy.cli", "exec", *state, "--", *visits, env=environ, timeout=90)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen.pop("sdk") == {"allowed": "hi", "denied": "policy_denied"}
    assert seen == dict.fromkeys(("curl", "git", "node", "httpx", "requests", "urllib"), PAGE)
    assert [run["tool"] for run in server.executions()] == ["echo"]
    assert {event["server"] for event in interlock.events() if event.get("tool")} == {f"localhost:{server.port}"}


def test_the_command_is_the_process_itself(interlock: Interlock, tmp_path: Path) -> None:
    script = "echo $$; echo ${INTERLOCK_LOG_LEVEL-unset} $SSL_CERT_FILE; read line; exit 7"
    words = ["exec", "--state-dir", str(interlock.state_dir), "--", "sh", "-c", script]
    environ = environment({"INTERLOCK_LOG_LEVEL": "error"})
    with start_module("proxy.cli", *words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        assert int(process.stdout.readline()) == process.pid
        assert process.stdout.readline().decode() == f"unset {interlock.state_dir}/ca/bundle.pem\n"
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
