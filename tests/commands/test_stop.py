"""`interlock stop`, and a terminal that is closed: a proxy ends, and says so."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sys
from pathlib import Path

from tests.support.harness import interlock_cli, seed_cache, start_interlock
from tests.support.timeouts import PATIENCE


def test_a_running_proxy_is_stopped_and_waited_for(tmp_path: Path) -> None:
    with start_interlock(tmp_path) as interlock:
        told = interlock.cli("stop", "--json")
        assert json.loads(told.stdout) == {"stopped": True, "running": False, "pid": interlock.run["pid"]}
        assert interlock.process.wait(PATIENCE) == 0
        interlock.stopped = True
        again = interlock.cli("stop")
        assert (again.returncode, again.stdout) == (0, f"No proxy runs on {interlock.state_dir}.\n")


def test_a_proxy_that_does_not_end_in_time_is_named(tmp_path: Path) -> None:
    with start_interlock(tmp_path) as interlock:
        interlock.process.send_signal(signal.SIGSTOP)
        try:
            told = interlock.cli("stop", "--timeout", "0.1")
        finally:
            interlock.process.send_signal(signal.SIGCONT)
        assert told.returncode == 1
        assert f"the proxy (process {interlock.run['pid']}) still runs after 0.1 s" in told.stderr
        assert interlock.process.wait(PATIENCE) == 0
        interlock.stopped = True


def test_a_second_proxy_on_the_folder_is_told_the_process_of_the_first(tmp_path: Path) -> None:
    with start_interlock(tmp_path) as interlock:
        told = interlock_cli("up", "--state-dir", str(interlock.state_dir), "--listen", "127.0.0.1:0")
        assert told.returncode == 1
        assert f"another interlock uses it (process {interlock.run['pid']})" in told.stderr
        assert "interlock stop" in told.stderr


def test_a_proxy_ends_with_its_terminal(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "proxy.cli", "up", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"]
    seed_cache(tmp_path / "state")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*words, "--state-dir", str(tmp_path / "state")])
    said = b""
    while b"is listening on" not in said:
        assert select.select([terminal], [], [], PATIENCE)[0], said
        said += os.read(terminal, 4096)
    os.close(terminal)
    handle = os.pidfd_open(pid)
    try:
        assert select.select([handle], [], [], PATIENCE)[0], "it still runs without its terminal"
    finally:
        os.close(handle)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not (tmp_path / "state" / "run.json").exists()
