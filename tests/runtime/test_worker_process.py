"""A worker is heard, told, and ends with its supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from proxy.errors import ConfigError
from proxy.runtime.worker_process import MAX_TEXT, Channel, WorkerProcess, WorkerStatus, fork_worker
from tests.support.processes import REPOSITORY
from tests.support.timeouts import PATIENCE


def hear(worker: WorkerProcess, limit: float = PATIENCE) -> None:
    deadline = time.monotonic() + limit
    while not worker.receive():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_worker_reports_and_ends_with_its_code() -> None:
    def work(channel: Channel) -> None:
        channel.report(WorkerStatus("v1"))
        channel.report(WorkerStatus("v1"))
        channel.report(WorkerStatus("v1", "x" * 100_000))
        time.sleep(60)

    worker = fork_worker(3, work, lambda: None)
    assert worker.report is None
    hear(worker)
    assert worker.report == WorkerStatus("v1")
    hear(worker)
    assert worker.report is not None
    assert len(worker.report.policy_problem or "") == MAX_TEXT + 1
    worker.send_signal(signal.SIGTERM)
    assert (worker.reap(), worker.failure) == (-signal.SIGTERM, None)


def test_a_worker_that_fails_says_why() -> None:
    def wrong(channel: Channel) -> None:
        raise ConfigError("setting x = 1: choose another")

    def odd(channel: Channel) -> None:
        raise ValueError("odd")

    failed = fork_worker(1, wrong, lambda: None)
    assert (failed.reap(), failed.failure) == (1, "setting x = 1: choose another")
    broken = fork_worker(1, odd, lambda: None)
    assert (broken.reap(), broken.failure) == (1, "ValueError: odd")
    done = fork_worker(1, lambda _: None, lambda: None)
    assert (done.reap(), done.failure) == (0, None)


SUPERVISOR = """
import os, sys, time
from proxy.runtime.worker_process import fork_worker
worker = fork_worker(1, lambda channel: time.sleep(60), lambda: None)
print(worker.pid, flush=True)
time.sleep(60)
"""


def test_a_worker_does_not_outlive_a_supervisor_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR], cwd=REPOSITORY, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout
        pidfd = os.pidfd_open(int(supervisor.stdout.readline()))
        supervisor.kill()
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                signal.pidfd_send_signal(pidfd, 0)
            except ProcessLookupError:
                break
            assert time.monotonic() < deadline, "the worker lives on"
            time.sleep(0.01)
        os.close(pidfd)
