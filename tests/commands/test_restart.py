"""`interlock restart`: the process that runs starts the next one, and the command says what became of it."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

from tests.faults.load import wait_until
from tests.support.harness import Interlock, interlock_cli, start_interlock
from tests.support.timeouts import PATIENCE


def pid_of(interlock: Interlock) -> int:
    return int(json.loads((interlock.state_dir / "run.json").read_bytes())["pid"])


def test_a_proxy_is_replaced_by_one_of_the_same_command_line(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        with start_interlock(tmp_path, flags=["--drain-timeout", "2"], env=env) as old:
            first = manager.recv(100).decode()
            told = old.cli("restart", "--json")
            assert told.returncode == 0, told.stderr
            new = json.loads(told.stdout)["pid"]
            assert old.process.wait(PATIENCE) == 0
            old.stopped = True
            assert [first, manager.recv(100).decode()] == [f"READY=1\nMAINPID={pid}" for pid in (old.run["pid"], new)]
            wait_until(lambda: pid_of(old) == new)
            (tmp_path / "policy.yaml").write_text("version: 1\ndefault: maybe\n")
            failed = old.cli("restart")
            assert failed.returncode == 1
            assert "the proxy was not replaced" in failed.stderr
            assert "maybe" in failed.stderr
            assert pid_of(old) == new
            os.kill(new, signal.SIGTERM)
            wait_until(lambda: not (old.state_dir / "run.json").exists())


def test_where_none_runs_it_says_so(tmp_path: Path) -> None:
    told = interlock_cli("restart", "--state-dir", str(tmp_path))
    assert told.returncode == 1
    assert "no proxy runs" in told.stderr
