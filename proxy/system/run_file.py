"""The note a running proxy leaves in its state folder, for the commands that look for it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class RunningWorker:
    """One worker: its process (0 where there is none now), whether it serves, and how often it had to be replaced."""

    number: int
    pid: int
    serves: bool
    restarts: int
    policy_version: str | None = None


@dataclass(frozen=True)
class Running:
    """Where a proxy can be reached, and the policy in force.

    `policy_problem` says why the policy on disk is not the one in force.
    `operator_socket` is where operators reach it, `operator_listen` the TCP
    address that does the same, where there is one. `health` is the address of
    health and metrics. `pid` is the supervisor's.
    """

    pid: int
    listen: str
    mode: str
    ca: str
    policy: str
    policy_version: str
    started: float
    policy_problem: str | None = None
    operator_socket: str | None = None
    operator_listen: str | None = None
    health: str | None = None
    workers: tuple[RunningWorker, ...] = ()


def write(state_dir: Path, running: Running) -> None:
    """Say that a proxy is ready, or how it is now."""
    write_private(_path(state_dir), json.dumps(asdict(running), indent=1).encode())


def read(state_dir: Path) -> Running | None:
    """Return the note of a proxy that is alive; None where there is none."""
    try:
        fields = json.loads(_path(state_dir).read_bytes())
        fields["workers"] = tuple(RunningWorker(**worker) for worker in fields.get("workers", ()))
        running = Running(**fields)
        os.kill(running.pid, 0)
    except (OSError, ValueError, TypeError, AttributeError, OverflowError):
        return None
    return running


def remove(state_dir: Path) -> None:
    """Take this process's note away; one of another proxy stays."""
    running = read(state_dir)
    if running is not None and running.pid == os.getpid():
        _path(state_dir).unlink(missing_ok=True)


def clear(state_dir: Path) -> None:
    """Take away the note of a proxy that was killed. Only for who holds the folder."""
    _path(state_dir).unlink(missing_ok=True)


def _path(state_dir: Path) -> Path:
    return state_dir / "run.json"
