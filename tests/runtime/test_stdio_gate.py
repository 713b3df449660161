"""The part of `interlock run` that is imported while the server starts."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from tests.stdio.test_runner import INITIALIZE
from tests.support.harness import environment, seed_cache
from tests.support.stdio_harness import recorder, start_run

STARTS = """
import sys
from proxy.sandbox import server_process
start = server_process.start_server
async def started(launch):
    print("started", "proxy.gate.gate" in sys.modules, "proxy.runtime.wiring" in sys.modules, file=sys.stderr)
    return await start(launch)
server_process.start_server = started
from proxy.cli import main
main()
"""


def test_the_server_is_started_before_the_gate_is_imported(tmp_path: Path) -> None:
    seed_cache(tmp_path)
    words = [sys.executable, "-c", STARTS, "run", "--state-dir", str(tmp_path), "--trace", "off", "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env=environment())
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (0, ["started False False"]), done.stderr


def test_not_a_byte_goes_to_a_server_whose_policy_does_not_load(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with start_run(tmp_path, recorder(log), "--trace", "off", policy="version: 1\nrules: 3\n") as run:
        with contextlib.suppress(BrokenPipeError):  # it may have ended by now
            run.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE})
        assert run.end() == 1
    assert "rules" in run.errors()
    assert not log.exists() or log.read_bytes() == b""


FAILS = """
from proxy.errors import PolicyError
from proxy.redact.reloader import LiveMasker
def prepare(self, detectors):
    raise PolicyError("the detectors cannot be compiled together")
LiveMasker.prepare = prepare
from proxy.cli import main
main()
"""


def test_a_server_whose_detectors_do_not_compile_gets_no_byte_and_is_ended(tmp_path: Path) -> None:
    log, pid = tmp_path / "log", tmp_path / "pid"
    seed_cache(tmp_path / "s")
    server = ["/bin/sh", "-c", 'echo $$ > "$0"; cat > "$1"', str(pid), str(log)]
    words = [sys.executable, "-c", FAILS, "run", "--state-dir", str(tmp_path / "s"), "--trace", "off", "--", *server]
    done = subprocess.run(
        words,
        check=False,
        input='{"jsonrpc":"2.0","id":0,"method":"ping"}\n',
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert done.returncode == 1
    assert "cannot be compiled together" in done.stderr
    assert done.stdout == ""
    assert not log.exists() or log.read_bytes() == b""
    assert not pid.exists() or not pid.read_text() or not Path("/proc", pid.read_text().strip()).exists()


def test_a_sandbox_that_cannot_be_had_ends_the_command(tmp_path: Path) -> None:
    with start_run(tmp_path, ["true"], "--trace", "off", "--sandbox=no-such-profile") as run:
        assert run.end() == 1
    assert "no-such-profile" in run.errors()
