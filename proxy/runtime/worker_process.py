"""Worker processes from the supervisor's side: fork, status messages, signals, exit.

A worker ends with its supervisor, however the supervisor ends. It reports its status over a socket pair of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from proxy.sandbox.process_reaper import PR_SET_PDEATHSIG, prctl
from proxy.system import gc_tuning, run_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = structlog.get_logger("interlock.workers")

MAX_TEXT: Final = 8000
MAX_REPORT: Final = 1 << 16
MAX_SOCKETS: Final = 64
RETIRE_SIGNAL: Final = signal.SIGUSR2
FORWARDED_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """What a serving worker reports to the supervisor."""

    policy_version: str
    policy_problem: str | None = None
    log_problem: str | None = None
    store_problem: str | None = None
    fleet_problem: str | None = None


class WorkerSlot:
    """One worker number: the process that has it now, or when the next one is due."""

    def __init__(self, number: int, log_number: int | None = None) -> None:
        self.number = number
        self.log_number = log_number or number
        self.worker: WorkerProcess | None = None
        self.due = 0.0
        self.failures = 0
        self.restarts = -1  # the first start makes it 0

    @property
    def serves(self) -> bool:
        """Whether the worker reported that it is ready."""
        return self.worker is not None and self.worker.report is not None

    def note(self) -> run_file.RunningWorker:
        pid, report = (self.worker.pid, self.worker.report) if self.worker else (0, None)
        version = report.policy_version if report else None
        return run_file.RunningWorker(self.number, pid, self.serves, max(0, self.restarts), version)


class Channel:
    """A worker's end of the socket pair to its supervisor."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._last: WorkerStatus | None = None

    def report(self, report: WorkerStatus) -> None:
        """Send the worker's status if it changed."""
        if report != self._last:
            self._last = report
            self._send({"report": {name: _short(value) for name, value in asdict(report).items()}})

    def fail(self, why: str) -> None:
        self._send({"failure": _short(why)})

    def hand_in(self, sockets: Sequence[socket.socket]) -> None:
        """Give the supervisor the sockets that this worker listens on, for a proxy that takes over."""
        self._send({"listening": len(sockets)}, [sock.fileno() for sock in sockets])

    async def wait_for_go(self) -> None:
        """Tell that this worker could serve, and wait until it shall."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        self._send({"prepared": True})
        loop.add_reader(self._socket, told.set)
        try:
            await told.wait()
        finally:
            loop.remove_reader(self._socket)
        self._socket.recv(MAX_REPORT, socket.MSG_DONTWAIT)

    def _send(self, value: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        with contextlib.suppress(OSError):  # no supervisor: the kernel is about to kill this worker
            socket.send_fds(self._socket, [json.dumps(value).encode()], descriptors)


class WorkerProcess:
    """One worker, from its fork to its end."""

    def __init__(self, number: int, pid: int, channel: socket.socket) -> None:
        self.number = number
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.channel = channel
        self.since = time.monotonic()
        self.report: WorkerStatus | None = None  # None until it serves
        self.failure: str | None = None
        self.prepared = False  # whether it waits for `go`
        self.listening: list[socket.socket] = []  # what it accepts from

    def receive(self) -> bool:
        """Read one message from the worker; return whether there was one."""
        flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        try:
            data, descriptors, _, _ = socket.recv_fds(self.channel, MAX_REPORT, MAX_SOCKETS, flags)
            message = json.loads(data or b"{}")
        except (OSError, ValueError):
            return False
        self.listening += [socket.socket(fileno=number) for number in descriptors]
        self.prepared = self.prepared or "prepared" in message
        if "report" in message:
            self.report = WorkerStatus(**message["report"])
        self.failure = message.get("failure", self.failure)
        return bool(message)

    def go(self) -> None:
        """Let a worker that is prepared serve."""
        self.prepared = False
        with contextlib.suppress(OSError):  # it has ended, which its pidfd tells
            self.channel.send(b"go")

    def close_inherited(self) -> None:
        """Close, in another child, what belongs to this one."""
        os.close(self.pidfd)
        for sock in (self.channel, *self.listening):
            sock.close()

    def send_signal(self, number: signal.Signals) -> None:
        # By pidfd, not by pid: the pid of a dead worker may already belong to another program.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def reap(self) -> int:
        """Wait for the worker's end; return its exit code, negative for a signal."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        # The socket still holds what it sent before it died, such as the reason.
        while self.receive():
            pass
        # At once: connections that the kernel puts into the queue of a worker that is gone would wait for nobody.
        self.close_inherited()
        return code


def fork_worker(number: int, work: Callable[[Channel], None], close_inherited: Callable[[], None]) -> WorkerProcess:
    """Fork a worker that runs `work` and exits; `close_inherited` closes what only the supervisor may hold.

    The caller must have one thread and no event loop: a lock that another thread holds would stay locked in the child.
    """
    # SEQPACKET keeps messages apart, and shows the end of the other side.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    supervisor = os.getpid()
    # Blocked until the child has its own handlers: its parent's would write to the parent's socket and lose the signal.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED_SIGNALS)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _run_worker(supervisor, before, work, close_inherited, Channel(theirs))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()
    return WorkerProcess(number, pid, ours)


def _run_worker(
    supervisor: int,
    mask: set[int | signal.Signals],
    work: Callable[[Channel], None],
    close_inherited: Callable[[], None],
    channel: Channel,
) -> NoReturn:
    code = 1
    try:
        # A worker without a supervisor would hold the port and be replaced by nobody: the kernel kills it.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # the supervisor died before prctl took effect
            os._exit(code)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the policy reloader runs
        signal.signal(RETIRE_SIGNAL, signal.SIG_IGN)  # until it serves
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        close_inherited()
        gc_tuning.share_one_arena()
        work(channel)
        code = 0
    except InterlockError as error:
        channel.fail(str(error))
    except BaseException as error:
        log.exception("worker failed", exc_info=error)
        channel.fail(f"{type(error).__name__}: {error}")
    finally:
        # os._exit, not sys.exit: exit handlers and open files of the parent must not run or be flushed twice.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _short(value: str | None) -> str | None:
    return value if value is None or len(value) <= MAX_TEXT else value[:MAX_TEXT] + "…"
