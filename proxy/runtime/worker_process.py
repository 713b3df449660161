"""Worker processes as their supervisor sees them: forked, heard, told and outlived.

A worker ends with its supervisor, however that ends. What it has to say it says as datagrams on a channel of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import structlog

from proxy.errors import InterlockError
from proxy.system import gc_tuning

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger("interlock.workers")

PR_SET_PDEATHSIG: Final = 1
MAX_TEXT: Final = 8000
MAX_REPORT: Final = 1 << 16
TOLD: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """How a worker that serves is."""

    policy_version: str
    policy_problem: str | None = None
    log_problem: str | None = None


class Channel:
    """A worker's end of the line to its supervisor."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._said: WorkerStatus | None = None

    def report(self, report: WorkerStatus) -> None:
        """Say how the worker is, where that is news."""
        if report != self._said:
            self._said = report
            self._send({"report": {name: _short(value) for name, value in asdict(report).items()}})

    def fail(self, why: str) -> None:
        """Say why the worker ends."""
        self._send({"failure": _short(why)})

    def _send(self, value: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # without a supervisor the worker is about to end
            self._socket.send(json.dumps(value).encode())


class WorkerProcess:
    """One worker, from its fork to its end."""

    def __init__(self, number: int, pid: int, channel: socket.socket) -> None:
        self.number = number
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.channel = channel
        self.since = time.monotonic()
        self.report: WorkerStatus | None = None
        """What it said of itself last; None until it serves."""
        self.failure: str | None = None
        """Why it said that it ends."""

    def hear(self) -> bool:
        """Take in what it says; return whether there was anything."""
        try:
            said = json.loads(self.channel.recv(MAX_REPORT, socket.MSG_DONTWAIT) or b"{}")
        except (OSError, ValueError):
            return False
        if "report" in said:
            self.report = WorkerStatus(**said["report"])
        self.failure = said.get("failure", self.failure)
        return bool(said)

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal; one that is gone need not hear it."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def reap(self) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        while self.hear():
            pass
        os.close(self.pidfd)
        self.channel.close()
        return code


def fork_worker(number: int, work: Callable[[Channel], None], let_go: Callable[[], None]) -> WorkerProcess:
    """Fork a worker that does `work` and ends; `let_go` closes, in it, what is the supervisor's alone.

    The caller must have one thread and no event loop.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    supervisor = os.getpid()
    # No signal may find a child with its parent's handlers.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TOLD)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _be_worker(supervisor, before, work, let_go, Channel(theirs))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return WorkerProcess(number, pid, ours)


def _be_worker(
    supervisor: int,
    mask: set[int | signal.Signals],
    work: Callable[[Channel], None],
    let_go: Callable[[], None],
    channel: Channel,
) -> NoReturn:
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != supervisor:  # it died before it could be followed
            os._exit(code)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a policy to load anew
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        let_go()
        gc_tuning.share_one_arena()
        work(channel)
        code = 0
    except InterlockError as error:
        channel.fail(str(error))
    except BaseException as error:
        log.exception("a worker failed", exc_info=error)
        channel.fail(f"{type(error).__name__}: {error}")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _short(value: str | None) -> str | None:
    return value if value is None or len(value) <= MAX_TEXT else value[:MAX_TEXT] + "…"
