"""The reaper by itself: nothing it started outlives it, or whoever owns it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.sandbox import process_reaper
from tests.support.timeouts import PATIENCE

LEAVES_ITS_SESSION = "import os, sys, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(60)"


@contextmanager
def start(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    held, leash = os.pipe()
    argv = [sys.executable, "-I", "-S", str(process_reaper.__file__), str(held), command[0], *command]
    process = subprocess.Popen(
        argv, pass_fds=[held], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    os.close(held)
    with process:
        try:
            yield process, leash
        finally:
            process.kill()


def line(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout
    return int(process.stdout.readline())


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 5", 5), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_the_exit_code_tells_how_the_program_ended(script: str, code: int) -> None:
    with start(["/bin/sh", "-c", script]) as (process, _):
        assert process.wait(PATIENCE) == code


def test_when_the_owner_goes_all_goes_also_what_left_its_session() -> None:
    script = f'{sys.executable} -c "{LEAVES_ITS_SESSION}" & trap "" TERM; wait; sleep 60'
    with start(["/bin/sh", "-c", script]) as (process, leash):
        child = line(process)
        os.close(leash)
        assert process.wait(PATIENCE) == 137
        wait_until_gone(child)


def test_when_the_program_ends_what_it_started_ends() -> None:
    script = f'{sys.executable} -c "{LEAVES_ITS_SESSION}" & read line; exit 4'
    with start(["/bin/sh", "-c", script]) as (process, _):
        child = line(process)
        assert process.stdin
        process.stdin.write(b"go\n")
        process.stdin.close()
        assert process.wait(PATIENCE) == 4
        wait_until_gone(child)


def test_when_the_reaper_is_killed_the_program_dies() -> None:
    with start(["/bin/sh", "-c", "echo $$; exec sleep 60"]) as (process, _):
        program = line(process)
        process.kill()
        wait_until_gone(program)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_the_programs(number: int) -> None:
    with start(["/bin/sh", "-c", "echo 1; exec sleep 60"]) as (process, _):
        line(process)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number


def ignored() -> int:
    """Return the signals that this process was started with ignored, as the kernel writes them; Python adds two."""
    status = Path("/proc/self/status").read_text()
    mask = int(status.partition("SigIgn:")[2].split()[0], 16)
    return mask & ~(1 << signal.SIGPIPE - 1) & ~(1 << signal.SIGXFSZ - 1)


def test_the_program_finds_signals_as_they_always_are() -> None:
    script = "import signal as s; print(int(all(s.getsignal(n) == s.SIG_DFL for n in (s.SIGTERM, s.SIGUSR1))))"
    with start([sys.executable, "-c", script]) as (process, _):
        assert line(process) == 1
    with start(["/bin/sh", "-c", f"grep -c '^SigIgn:.*{ignored():016x}' /proc/self/status"]) as (process, _):
        assert line(process) == 1


def test_the_program_has_no_descriptor_but_its_three() -> None:
    with start([sys.executable, "-c", "import os; print(len(os.listdir('/proc/self/fd')))"]) as (process, _):
        assert line(process) == 4  # and the one that lists them


@pytest.mark.parametrize(("content", "code"), [(None, 127), ("#!/no/such/interpreter\n", 127), ("plain words\n", 126)])
def test_a_program_that_cannot_be_started_is_named(content: str | None, code: int, tmp_path: Path) -> None:
    program = tmp_path / "program"
    if content is not None:
        program.write_text(content)
        program.chmod(0o755)
    with start([str(program)]) as (process, _):
        assert process.wait(PATIENCE) == code
        assert process.stderr
        assert process.stderr.read().decode().startswith(f"interlock run: cannot start '{program}': ")


@pytest.mark.parametrize(("number", "code"), [(errno.ENOENT, 127), (errno.EACCES, 126), (errno.ENOEXEC, 126)])
def test_the_codes_are_those_of_shells(number: int, code: int) -> None:
    assert process_reaper.start_code(OSError(number, os.strerror(number))) == code


def test_descendants_are_found_at_any_depth() -> None:
    script = "sh -c 'sh -c \"echo 1; exec sleep 60\" & wait' & wait"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        line(process)
        found = process_reaper.descendants(process.pid)
        assert len(found) == 2
        assert found < process_reaper.descendants(os.getpid())
        for pid in found:
            with contextlib.suppress(ProcessLookupError):  # a shell ends with what it waited for
                os.kill(pid, signal.SIGKILL)
        process.kill()
