"""The reaper of a sandboxed server becomes its sandbox without a second interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from proxy.sandbox import sandboxed_reaper, server_process
from proxy.sandbox.server_process import Launch, start_server
from proxy.trace.tracer import under_strace
from tests.faults.load import wait_until
from tests.support.timeouts import PATIENCE


def run(*words: str, descriptors: tuple[int, ...] = ()) -> subprocess.CompletedProcess[bytes]:
    held, leash = os.pipe()
    argv = [sys.executable, "-I", "-S", str(sandboxed_reaper.__file__), str(held), *words]
    try:
        return subprocess.run(argv, pass_fds=[held, *descriptors], capture_output=True, timeout=PATIENCE, check=False)
    finally:
        os.close(held)
        os.close(leash)


def test_both_sides_name_the_same_script() -> None:
    assert sandboxed_reaper.OPTIONS == server_process.SANDBOX


def test_any_other_program_is_executed_as_ever() -> None:
    done = run("/bin/sh", "sh", "-c", "echo its own; exit 5")
    assert (done.returncode, done.stdout) == (5, b"its own\n")
    assert run("/no/such/program", "program").returncode == 127


def test_a_plan_that_cannot_be_read_starts_nothing(tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.write_bytes(b"no plan")
    with plan.open("rb") as file:
        done = run(
            *(sys.executable, sys.executable, *server_process.SANDBOX, str(file.fileno()), "0"),
            descriptors=(file.fileno(),),
        )
    assert done.returncode == 126


async def test_the_sandbox_is_the_reapers_own_child_and_gets_its_signals_back() -> None:
    # Without a plan it fails at once, so a plan that blocks: a pipe of which it waits for the end.
    reading, writing = os.pipe()
    sandbox = Launch(sys.executable, (sys.executable, *server_process.SANDBOX, str(reading), "0"), (reading,))
    server = await start_server(sandbox)
    try:
        # Between fork and exec it has another name, or none.
        wait_until(lambda: b"sandboxed_reaper.py" in Path(f"/proc/{server.pid}/cmdline").read_bytes())
        os.close(writing)
        assert await server.ended() == 126
    finally:
        server.signal(signal.SIGTERM)
        await server.clean_up()


def test_under_strace_the_sandbox_is_a_program_of_its_own(tmp_path: Path) -> None:
    sandbox = Launch(sys.executable, (sys.executable, *server_process.SANDBOX, "3", "4"))
    traced = under_strace(sandbox, "/usr/bin/strace", tmp_path / "lines", sandboxed=True)
    assert server_process._reaper_of(sandbox) == "sandboxed_reaper.py"
    assert server_process._reaper_of(traced) == "process_reaper.py"
    assert server_process._reaper_of(Launch("/bin/sh", ("sh",))) == "process_reaper.py"
