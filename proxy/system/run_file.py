"""run.json in the state folder: where the running proxy is, for `status`, `exec`, `confine` and others."""

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
    number: int
    pid: int  # 0 while it is being replaced
    serves: bool
    restarts: int
    policy_version: str | None = None


@dataclass(frozen=True)
class RunningProxy:
    """Addresses of a running proxy, and the policy in force."""

    pid: int  # the supervisor's
    listen: str
    mode: str
    ca: str
    policy: str
    policy_version: str
    started: float
    policy_problem: str | None = None  # why the policy on disk is not in force
    operator_socket: str | None = None  # the admin API's unix socket
    operator_listen: str | None = None  # the admin API's TCP address
    health: str | None = None  # the address of health and metrics
    console: str | None = None  # the URL of the console
    workers: tuple[RunningWorker, ...] = ()
    fleet_problem: str | None = None  # why it is not at one with its fleet
    profile: str | None = None  # the shipped policy that counts, alone or beside another one


def write(state_dir: Path, running: RunningProxy) -> None:
    write_private(_path(state_dir), json.dumps(asdict(running), indent=1).encode())


def read(state_dir: Path) -> RunningProxy | None:
    """Return the running proxy; None if none runs."""
    try:
        fields = json.loads(_path(state_dir).read_bytes())
        fields["workers"] = tuple(RunningWorker(**worker) for worker in fields.get("workers", ()))
        running = RunningProxy(**fields)
        os.kill(running.pid, 0)  # a proxy that was killed leaves its file behind
    except (OSError, ValueError, TypeError, AttributeError, OverflowError):
        return None
    return running


def console_url(state_dir: Path) -> str | None:
    """Return where operators open the console of the running proxy; None where there is none."""
    running = read(state_dir)
    return running.console if running is not None else None


def remove(state_dir: Path) -> None:
    """Delete the run file if it is this process's own."""
    running = read(state_dir)
    if running is not None and running.pid == os.getpid():
        _path(state_dir).unlink(missing_ok=True)


def clear(state_dir: Path) -> None:
    """Delete the run file of a proxy that was killed. The caller must hold the folder's lock."""
    _path(state_dir).unlink(missing_ok=True)


def _path(state_dir: Path) -> Path:
    return state_dir / "run.json"
