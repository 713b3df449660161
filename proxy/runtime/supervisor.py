"""The process that starts, watches and replaces the workers. It holds the state folder, the ports and the run file.

It loads the policy, creates the CA and the keys, and then forks, so that workers share that memory and agree on the CA.
It forwards SIGHUP, SIGTERM and SIGINT to the workers, serves health and metrics, and handles no agent traffic itself.
It has one thread and no event loop, so that it can fork at any time.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from typing import TYPE_CHECKING, Final

import structlog

from proxy.admin_api.sockets import Listeners
from proxy.core.halts import Halt
from proxy.core.ids import new_id
from proxy.errors import ConfigError, InterlockError
from proxy.identity.ca import Authority
from proxy.metrics.counters import Counters
from proxy.metrics.http_server import BACKLOG, HealthServer
from proxy.policy.reloader import describe_refusal
from proxy.runtime.console_process import ConsoleProcess
from proxy.runtime.health_report import HealthReport
from proxy.runtime.preload import preload
from proxy.runtime.worker import Worker, WorkerContext
from proxy.runtime.worker_process import FORWARDED_SIGNALS, Channel, WorkerProcess, fork_worker
from proxy.store.halt_file import HaltFile
from proxy.store.shared_calls import make_shared_calls
from proxy.system import event_loop, gc_tuning, log_setup, run_file
from proxy.system.listen_ports import ReservedPorts, format_address, unusable
from proxy.system.secret_files import FolderLock
from proxy.system.terminal import has_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxy.config import Settings
    from proxy.system.listen_ports import Address

log = structlog.get_logger("interlock.supervisor")

TICK_SECONDS: Final = 1.0
HALT_SIGNAL: Final = signal.SIGUSR1
# After the drain, so long may a worker take to write its last events before it is killed.
STOP_SECONDS: Final = 15.0
# A worker that ran so long started well; one that did not is restarted with a growing pause.
STEADY_SECONDS: Final = 10.0
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
# When every worker failed so often in a row, the supervisor gives up: an orchestrator must see that nothing serves.
MAX_FAILURES: Final = 5


class WorkerSlot:
    """One worker number: the process that has it now, or when the next one is due."""

    def __init__(self, number: int) -> None:
        self.number = number
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


class Supervisor:
    """One proxy. Create it in a process with one thread and no event loop, then call `run`."""

    def __init__(self, settings: Settings) -> None:
        """Create all that workers share. Raises InterlockError if something in it cannot be used."""
        self._settings = settings
        self._closing = contextlib.ExitStack()
        self._slots = [WorkerSlot(number) for number in range(1, settings.workers + 1)]
        self._pending_signals: list[int] = []
        self._had_terminal = has_terminal()
        self._stopping_since: float | None = None
        self._ready = False
        self._in_force: str | None = None
        self._ended_badly: list[str] = []
        self._looked = 0.0
        self._noted: run_file.RunningProxy | None = None
        self._wakeup, self._waker = socket.socketpair()
        self._closing.callback(self._wakeup.close)
        self._closing.callback(self._waker.close)
        with contextlib.ExitStack() as undo:
            undo.callback(self._closing.close)
            self._prepare(settings)
            undo.pop_all()

    def _prepare(self, settings: Settings) -> None:
        self._lock = FolderLock(settings.state_dir)
        self._closing.callback(self._lock.release)
        run_file.clear(settings.state_dir)
        # Before the fork: what is loaded now is in memory once, and all workers present certificates of one CA.
        self._preloaded = preload(settings, whole=True)
        event_loop.loop_factory()
        self._authority = Authority(settings.state_dir)
        self._authority.ensure()
        self._listening = ReservedPorts("listen", *settings.listen_address)
        self._closing.callback(self._listening.close)
        self._listeners = Listeners(settings.state_dir, settings.operator_address)
        self._closing.callback(self._listeners.close)
        self._counters = Counters(settings.workers)
        self._shared_calls = make_shared_calls(settings.state_dir) if settings.workers > 1 else None
        self._health_report = HealthReport(settings, self._counters, self._slots, self._preloaded.policy)
        self._health = self._open_health(settings)
        self._console = ConsoleProcess(settings, self._preloaded.policy, self._close_inherited)
        self._closing.callback(self._console.stop)
        self._started = time.time()

    def _open_health(self, settings: Settings) -> HealthServer | None:
        if settings.health_address is None:
            return None
        try:
            listener = socket.create_server(settings.health_address, backlog=BACKLOG)
        except OSError as error:
            problem = unusable("health_listen", *settings.health_address, error)
            # Only an address that somebody chose must work: a second proxy on this machine need not set another.
            if "health_listen" in settings.model_fields_set:
                raise problem from error
            log.warning("health and metrics are not served", error=str(problem))
            return None
        self._health_address = listener.getsockname()[:2]
        server = HealthServer(listener, self._health_report.answer)
        self._closing.callback(server.close)
        return server

    def run(self, on_ready: Callable[[run_file.RunningProxy], None] = lambda _: None) -> None:
        """Run the workers until a signal stops them and they have drained.

        Raises InterlockError if they cannot be started, keep failing, or did not end well.
        """
        # Just before the first fork: a collection in a worker would write to every shared page, and so copy it.
        gc_tuning.release_free_memory()
        gc_tuning.freeze()
        try:
            with self._signals():
                while self._stopping_since is None or self._console.process or any(slot.worker for slot in self._slots):
                    self._keep_up()
                    self._note(on_ready)
                    self._wait()
        except BaseException:
            self._kill_all()
            raise
        finally:
            run_file.remove(self._settings.state_dir)
            self._closing.close()
        if self._ended_badly:
            raise InterlockError("; ".join(self._ended_badly))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Queue signals for the loop, and wake its poll by a byte on a socket."""
        self._waker.setblocking(False)
        self._wakeup.setblocking(False)
        before = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        handlers = {
            number: signal.signal(number, lambda number, _: self._pending_signals.append(number))
            for number in (*FORWARDED_SIGNALS, HALT_SIGNAL)
        }
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)

    def _keep_up(self) -> None:
        """Handle signals, start missing workers, reload the policy, close old health connections."""
        while self._pending_signals:
            self._on_signal(self._pending_signals.pop(0))
        now = time.monotonic()
        if self._stopping_since is None:
            for slot in self._slots:
                if slot.worker is None and slot.due <= now:
                    self._start_or_wait(slot)
        elif now > self._stopping_since + self._settings.drain_timeout + STOP_SECONDS:
            raise InterlockError("workers did not stop in time and were killed; the events they recorded are kept")
        if now >= self._looked + TICK_SECONDS:
            self._looked = now
            self._preloaded.policy.reload_if_changed()  # for workers that are forked later
        if self._health is not None:
            self._health.expire()

    def _on_signal(self, number: int) -> None:
        if number == HALT_SIGNAL:
            self._halt()
            return
        # Of a terminal that was closed it means: end. A proxy that nobody sees any more would go on for ever.
        closed = number == signal.SIGHUP and self._had_terminal and not has_terminal()
        if number == signal.SIGHUP and not closed:
            self._preloaded.policy.reload_if_changed()
            self._signal_all(signal.SIGHUP)
        elif self._stopping_since is None:
            self._stopping_since = time.monotonic()
            self._health_report.stopping = True
            self._console.stop()
            self._signal_all(signal.SIGTERM)

    def _halt(self) -> None:
        """Halt everything, as whoever sent the signal wants. The workers see the file at once, and tell the store."""
        halt = Halt(new_id(), f"the supervisor got {HALT_SIGNAL.name}", "signal", time.time(), origin="signal")
        try:
            HaltFile(self._settings.state_dir).add(halt)
            log.warning("halted by a signal", halt_id=halt.halt_id)
        except ConfigError as error:
            # What cannot be halted is stopped: whoever sends this wants no more calls.
            log.exception("cannot halt, so the proxy stops", error=str(error))
            self._on_signal(signal.SIGTERM)

    def _signal_all(self, number: signal.Signals) -> None:
        for slot in self._slots:
            if slot.worker is not None:
                slot.worker.send_signal(number)

    def _start_or_wait(self, slot: WorkerSlot) -> None:
        """Start a worker, unless it would use an older policy than the other workers do.

        The files may have changed twice since this process read them: the policy in force is then not in memory here,
        and the one on disk is invalid. Fail closed: the worker waits for a valid policy.
        """
        policy = self._preloaded.policy
        policy.reload_if_changed()
        if policy.problem is not None and self._in_force not in (None, policy.current().version):
            log.error("worker not replaced: the policy on disk is invalid", worker=slot.number, error=policy.problem)
            slot.due = time.monotonic() + LONGEST_PAUSE
            return
        slot.restarts += 1
        slot.worker = fork_worker(slot.number, lambda channel: self._work(slot, channel), self._close_in_worker)

    def _close_in_worker(self) -> None:
        self._close_inherited()
        self._console.close_in_worker()

    def _close_inherited(self) -> None:
        # In a worker: a copy of the lock or the ports would keep them taken after the supervisor has ended.
        self._lock.release()
        self._listening.close()
        if self._health is not None:
            self._health.close()
        others = [*(slot.worker for slot in self._slots), self._console.process]
        for sock in (self._wakeup, self._waker, *(other.channel for other in others if other)):
            sock.close()
        for other in others:
            if other is not None:
                os.close(other.pidfd)

    def _work(self, slot: WorkerSlot, channel: Channel) -> None:
        if len(self._slots) > 1:
            log_setup.name_worker(slot.number)
        context = WorkerContext(
            number=slot.number,
            preloaded=self._preloaded,
            addresses=self._listening.addresses,
            private=self._private_addresses(),
            listeners=self._listeners,
            channel=channel,
            counters=self._counters.row(slot.number),
            shared_calls=self._shared_calls,
            console=self._console.url,
        )

        async def serve() -> None:
            await Worker(self._settings, context).run()

        event_loop.run(serve())

    def _private_addresses(self) -> list[Address]:
        health = self._health_address if self._health is not None else None
        return [address for address in (health, self._console.address) if address is not None]

    def _wait(self) -> None:
        """Wait for a signal, a worker or a health connection, at most until something is due."""
        poll, now = select.poll(), time.monotonic()
        poll.register(self._wakeup, select.POLLIN)
        workers = [slot.worker for slot in self._slots if slot.worker is not None]
        for worker in workers:
            poll.register(worker.channel, select.POLLIN)
            poll.register(worker.pidfd, select.POLLIN)
        for number, wanted in self._health.interests() if self._health is not None else ():
            poll.register(number, wanted)
        for number in self._console.interests():
            poll.register(number, select.POLLIN)
        waits = [slot.due - now for slot in self._slots if slot.worker is None and self._stopping_since is None]
        for number, _ in poll.poll(1000 * max(0.0, min([TICK_SECONDS, *waits]))):
            self._attend(number, workers)

    def _attend(self, number: int, workers: list[WorkerProcess]) -> None:
        if number == self._wakeup.fileno():
            with contextlib.suppress(BlockingIOError):
                self._wakeup.recv(4096)
        elif (self._health is not None and self._health.attend(number)) or self._console.attend(number):
            return
        for worker in workers:
            if number == worker.pidfd:
                self._on_exit(worker)
            elif worker.channel.fileno() == number and worker.receive() and worker.report is not None:
                self._in_force = worker.report.policy_version
                self._preloaded.policy.reload_if_changed()

    def _on_exit(self, worker: WorkerProcess) -> None:
        slot = self._slots[worker.number - 1]
        code, lived = worker.reap(), time.monotonic() - worker.since
        slot.worker = None
        self._counters.row(worker.number).begin()
        why = worker.failure or (f"killed by signal {-code}" if code < 0 else f"exit code {code}")
        if self._stopping_since is not None:
            if code not in (0, -signal.SIGTERM):  # SIGTERM ends a worker that does not serve yet
                self._ended_badly.append(f"worker {worker.number} did not stop cleanly: {why}")
            return
        if not self._ready:
            raise InterlockError(worker.failure or f"worker {worker.number} ended before it was ready: {why}")
        slot.failures = 0 if lived >= STEADY_SECONDS else slot.failures + 1
        if all(each.failures >= MAX_FAILURES for each in self._slots):
            raise InterlockError(f"every worker failed {MAX_FAILURES} times in a row; the last: {why}")
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (slot.failures - 1)) if slot.failures else 0.0
        slot.due = time.monotonic() + pause
        log.error("worker ended, starting another", worker=slot.number, pid=worker.pid, why=why, after=pause)

    def _kill_all(self) -> None:
        for slot in self._slots:
            if slot.worker is not None:
                slot.worker.send_signal(signal.SIGKILL)
                slot.worker.reap()
                slot.worker = None
        self._console.kill()

    def _note(self, on_ready: Callable[[run_file.RunningProxy], None]) -> None:
        """Write the run file if it changed; call `on_ready` once, when all workers serve."""
        if self._stopping_since is not None or not (self._ready or all(slot.serves for slot in self._slots)):
            return
        running = self._running()
        if running != self._noted:
            _log_policy(self._noted or running, running)
            self._noted = running
            try:
                run_file.write(self._settings.state_dir, running)
            except OSError as error:
                log.exception("cannot write the run file", error=str(error))
        if not self._ready:
            self._ready = True
            on_ready(running)

    def _running(self) -> run_file.RunningProxy:
        settings, reports = self._settings, self._health_report.reports()
        versions = {report.policy_version for report in reports}
        before = self._noted.policy_version if self._noted else self._preloaded.policy.current().version
        return run_file.RunningProxy(
            pid=os.getpid(),
            listen=format_address(self._listening.addresses[0]),
            mode=settings.mode,
            ca=str(self._authority.certificate_file),
            policy=str(settings.policy),
            profile=settings.profile,
            # While workers reload one after the other, the policy before is the one that all of them had.
            policy_version=versions.pop() if len(versions) == 1 else before,
            started=self._started,
            policy_problem=next((report.policy_problem for report in reports if report.policy_problem), None),
            fleet_problem=next((report.fleet_problem for report in reports if report.fleet_problem), None),
            operator_socket=str(self._listeners.path),
            operator_listen=next(map(format_address, self._listeners.addresses), None),
            health=format_address(self._health_address) if self._health is not None else None,
            console=self._console.url,
            workers=tuple(slot.note() for slot in self._slots),
        )


def _log_policy(before: run_file.RunningProxy, now: run_file.RunningProxy) -> None:
    """Log what became of a reload. Every worker reloads; one line says it."""
    if now.policy_problem is not None and now.policy_problem != before.policy_problem:
        log.error(describe_refusal(now.policy_problem))
    elif (now.policy_version, now.policy_problem) != (before.policy_version, before.policy_problem):
        log.info("policy in force", path=now.policy, version=now.policy_version)
