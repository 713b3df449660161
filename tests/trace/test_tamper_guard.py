from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from proxy.trace.capability import Capability, Observation
from proxy.trace.tamper_guard import OpenCounter, attacks_watcher, find_tracer, modifies, tracer_state
from tests.support.timeouts import PATIENCE

PIPE = subprocess.PIPE
GUARDS = frozenset({7, -7, -1})


def done(capability: Capability, action: str, path: str, error: str | None = None) -> Observation:
    return Observation(capability, action, 1, 0.0, "line", path=path, error=error)


@pytest.mark.parametrize(
    ("action", "path", "expected"),
    [
        ("kill", "7, SIGSTOP", True),
        ("kill", "-7, SIGSTOP", True),
        ("kill", "-1, SIGTERM", True),
        ("kill", "77, SIGSTOP", False),
        ("ptrace", "PTRACE_SEIZE, 7", True),
        ("ptrace", "PTRACE_SEIZE, 8", False),
        ("pidfd_getfd", "7, 3", True),
        ("mount", "7, 7", False),
    ],
)
def test_what_is_done_to_a_guard_is_known(action: str, path: str, expected: bool) -> None:
    assert attacks_watcher(done(Capability.KERNEL, action, path), GUARDS) is expected


@pytest.mark.parametrize(
    ("path", "error", "expected"),
    [
        ("/proc/7/mem", None, True),
        ("/other/proc/7/task/7/mem", None, True),
        ("/proc/7/mem", "EACCES", False),
        ("/proc/8/mem", None, False),
        ("/proc/7/status", None, False),
        ("/srv/mem", None, False),
    ],
)
def test_a_look_into_a_guards_memory_is_known(path: str, error: str | None, expected: bool) -> None:
    assert attacks_watcher(done(Capability.FS_READ, "open", path, error), GUARDS) is expected


@pytest.mark.parametrize(
    ("capability", "path", "expected"),
    [
        (Capability.FS_WRITE, "/state/pins.db", True),
        (Capability.FS_DELETE, "/state", True),
        (Capability.FS_READ, "/state/pins.db", False),
        (Capability.FS_WRITE, "/statement", False),
    ],
)
def test_what_is_done_to_what_is_ours_is_known(capability: Capability, path: str, expected: bool) -> None:
    assert modifies(done(capability, "write", path), ("/policy.yaml", "/state")) is expected
    assert modifies(done(capability, "write", path), ()) is False


def test_a_tracer_that_runs_is_told_from_one_that_does_not() -> None:
    assert tracer_state(os.getpid()) is None
    assert tracer_state(1 << 30) == "gone"
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            process.send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + PATIENCE
            while tracer_state(process.pid) is None and time.monotonic() < deadline:
                time.sleep(0.01)
            assert tracer_state(process.pid) == "stopped"
        finally:
            process.kill()


def test_a_tracer_is_found_by_the_kernels_word_whatever_it_is_called() -> None:
    with subprocess.Popen(
        ["strace", "-o", "/dev/null", "sh", "-c", "echo $$; read _"], stdin=PIPE, stdout=PIPE
    ) as strace:
        assert strace.stdout
        assert strace.stdin
        traced = int(strace.stdout.readline())
        assert find_tracer(os.getpid()) == strace.pid
        assert tracer_state(traced) == "traced"
        strace.stdin.close()


def test_openings_are_counted_by_whatever_name(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    openings = OpenCounter(pipe)
    assert openings.count() == 0
    writing = os.open(pipe, os.O_WRONLY)
    assert openings.count() == 1
    pipe.unlink()
    os.write(writing, b"x")
    assert openings.count() == 1
    again = os.open(f"/proc/self/fd/{reading}", os.O_RDONLY | os.O_NONBLOCK)
    assert openings.count() == 2
    openings.close()
    openings.close()
    for descriptor in (reading, writing, again):
        os.close(descriptor)
