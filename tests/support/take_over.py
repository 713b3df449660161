"""Starts a second Interlock that takes over from a running one."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.harness import Interlock, _wait_for_run_file, environment
from tests.support.processes import Process, start_module
from tests.support.timeouts import PATIENCE

NUMBERS = itertools.count(1)


def begin_take_over(interlock: Interlock, *flags: str, program: Sequence[str] | None = None) -> tuple[Process, Path]:
    """Start what takes over, with the flags of the running one and more; return it and the file of its stderr."""
    stderr = interlock.stderr.with_name(f"take-over-{next(NUMBERS)}.stderr")
    argv = [*(program or ()), *interlock.argv[1 if program else 0 :], "--take-over", *flags]
    with stderr.open("wb") as errors:
        return start_module(*argv, env=environment(interlock.env), stdout=errors, stderr=errors), stderr


def take_over(interlock: Interlock, *flags: str) -> Interlock:
    """Let a new process take over; return it once it serves. The caller ends it."""
    process, stderr = begin_take_over(interlock, *flags)
    run = _wait_for_run_file(process, interlock.state_dir / "run.json", stderr)
    return Interlock(
        process,
        interlock.state_dir,
        stderr,
        run,
        database_url=interlock.database_url,
        argv=interlock.argv,
        env=interlock.env,
    )


def ended(interlock: Interlock) -> int:
    """Wait for the end of one that was taken over from; return its exit code."""
    interlock.stopped = True
    try:
        return interlock.process.wait(PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"it does not end:\n{interlock.errors()[-5000:]}") from error
