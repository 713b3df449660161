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
import time
from typing import TYPE_CHECKING, Final

import structlog

from proxy.audit.local_log_files import free_logs
from proxy.core.halts import Halt
from proxy.core.ids import new_id
from proxy.errors import ConfigError, InterlockError
from proxy.identity.ca import Authority
from proxy.metrics.counters import Counters
from proxy.metrics.http_server import HealthServer
from proxy.runtime.console_process import ConsoleProcess
from proxy.runtime.hand_over import HandOver
from proxy.runtime.health_report import HealthReport
from proxy.runtime.preload import fill_caches, is_first_start, preload
from proxy.runtime.proxy_sockets import ProxySockets
from proxy.runtime.running_note import RunningNote, log_policy
from proxy.runtime.signal_queue import SignalQueue
from proxy.runtime.take_over import LOCK, Offer, TakeOver
from proxy.runtime.worker import Worker, WorkerContext
from proxy.runtime.worker_process import (
    FORWARDED_SIGNALS,
    RETIRE_SIGNAL,
    Channel,
    WorkerProcess,
    WorkerSlot,
    fork_worker,
)
from proxy.store.halt_file import HaltFile
from proxy.store.shared_calls import open_shared_calls
from proxy.system import event_loop, gc_tuning, log_setup, run_file
from proxy.system.handed_sockets import HandedSockets
from proxy.system.memory_dumps import keep_out_of_dumps
from proxy.system.secret_files import FolderLock
from proxy.system.service_manager import tell_ready
from proxy.system.terminal import has_terminal
from proxy.vault.shared_values import SharedValues
from proxy.vault.vault_file import FILE as VAULT

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence

    from proxy.config import Settings
    from proxy.system.listen_ports import Address

log = structlog.get_logger("interlock.supervisor")

TICK_SECONDS: Final = 1.0
COMPILER: Final = 0  # workers count from 1
HALT_SIGNAL: Final = signal.SIGUSR1
# After the drain, so long may a worker take to write its last events before it is killed.
STOP_SECONDS: Final = 15.0
# A worker that ran so long started well; one that did not is restarted with a growing pause.
STEADY_SECONDS: Final = 10.0
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
# When every worker failed so often in a row, the supervisor gives up: an orchestrator must see that nothing serves.
MAX_FAILURES: Final = 5


class Supervisor:
    """One proxy. Create it in a process with one thread and no event loop, then call `run`."""

    def __init__(self, settings: Settings, *, take_over: bool = False) -> None:
        """Create all that workers share. Raises InterlockError if something in it cannot be used.

        With `take_over`, the proxy that runs on the state folder, if one does, hands its sockets on (take_over.py).
        """
        self._settings = settings
        self._closing = contextlib.ExitStack()
        self._slots: list[WorkerSlot] = []
        self._before: TakeOver | None = None
        self._signals = SignalQueue()
        self._closing.callback(self._signals.close)
        self._had_terminal = has_terminal()
        self._stopping_since: float | None = None
        self._ready = False
        self._in_force: str | None = None
        self._ended_badly: list[str] = []
        self._looked = 0.0
        self._noted: run_file.RunningProxy | None = None
        with contextlib.ExitStack() as undo:
            undo.callback(self._closing.close)
            self._before = TakeOver.begin(settings.state_dir) if take_over else None
            if self._before is not None:
                self._closing.callback(self._before.close)
            with self._told_if_it_fails():
                self._prepare(settings)
            undo.pop_all()

    @contextlib.contextmanager
    def _told_if_it_fails(self) -> Iterator[None]:
        """Tell the proxy that goes on why this one does not take over."""
        try:
            yield
        except BaseException as error:
            if self._before is not None:
                self._before.failed(str(error) or type(error).__name__)
            raise

    def _prepare(self, settings: Settings) -> None:
        before = self._before
        handed = before.handed if before is not None else HandedSockets()
        self._lock = FolderLock(settings.state_dir, before.lock if before is not None else None)
        self._closing.callback(self._lock.release)
        if before is None:
            run_file.clear(settings.state_dir)
        logs = free_logs(settings.state_dir, settings.workers, before.logs if before is not None else ())
        self._slots += [WorkerSlot(number, log) for number, log in enumerate(logs, 1)]
        # Before the fork: what is loaded now is in memory once, and all workers present certificates of one CA.
        if is_first_start(settings):
            # Compiling leaves 9 MB in memory that no allocator gives back. Here they end with a process. What fails in
            # it is tried again below, and told.
            fork_worker(COMPILER, lambda _: fill_caches(settings), self._lock.release).reap()
        self._preloaded = preload(settings, whole=True)
        event_loop.loop_factory()
        authority = Authority(settings.state_dir)
        authority.ensure()
        self._sockets = ProxySockets(settings, handed, self._closing.callback)
        self._sockets.operators.handed_on = before is not None  # until this proxy serves, its path is the other one's
        self._counters = Counters(settings.workers)
        self._shared_values = SharedValues(settings.workers)
        self._shared_calls = open_shared_calls(settings.state_dir, before.shared_calls if before is not None else None)
        self._health_report = HealthReport(settings, self._counters, self._slots, self._preloaded.policy)
        self._health = HealthServer(health, self._health_report.answer) if (health := self._sockets.health) else None
        self._console = ConsoleProcess(settings, self._preloaded.policy, self._close_inherited, handed)
        self._closing.callback(self._console.stop)
        self._hand_over = HandOver(settings.state_dir, self._offer, self._retire, handed, self._settled)
        self._hand_over.handed_on = before is not None
        self._closing.callback(self._hand_over.close)
        handed.close()
        self._running = RunningNote(settings, self._sockets, self._slots, str(authority.certificate_file))
        self._started = time.time()

    def _settled(self) -> bool:
        return all(slot.serves for slot in self._slots if slot.worker is not None)

    def _offer(self) -> Offer:
        """Return what a proxy that takes over needs of this one."""
        accepting = [sock for slot in self._slots if slot.worker for sock in slot.worker.listening]
        sockets = [*self._sockets.named(accepting), *self._console.sockets]
        descriptors = [(LOCK, self._lock.fileno()), *((name, sock.fileno()) for name, sock in sockets)]
        return Offer(descriptors, [slot.log_number for slot in self._slots], self._shared_calls.name)

    def run(self, on_ready: Callable[[run_file.RunningProxy], None] = lambda _: None) -> None:
        """Run the workers until a signal stops them and they have drained.

        Raises InterlockError if they cannot be started, keep failing, or did not end well.
        """
        # Just before the first fork: a collection in a worker would write to every shared page, and so copy it.
        gc_tuning.release_free_memory()
        gc_tuning.freeze()
        try:
            with self._signals.catching((*FORWARDED_SIGNALS, HALT_SIGNAL)), self._told_if_it_fails():
                while self._stopping_since is None or self._console.process or any(slot.worker for slot in self._slots):
                    self._keep_up()
                    self._note(on_ready)
                    self._wait()
        except BaseException:
            self._kill_all()
            raise
        finally:
            if not self._hand_over.handed_on:  # else it is another one's
                run_file.remove(self._settings.state_dir)
            self._closing.close()
        if self._ended_badly:
            raise InterlockError("; ".join(self._ended_badly))

    def _keep_up(self) -> None:
        """Handle signals, start missing workers, reload the policy, close old health connections."""
        for number in self._signals.take():
            self._on_signal(number)
        now = time.monotonic()
        if self._stopping_since is None:
            # One that starts after the sockets were handed on would listen on one that nobody takes over.
            waits = self._hand_over.under_way and any(slot.serves for slot in self._slots)
            for slot in () if waits else self._slots:
                if slot.worker is None and slot.due <= now:
                    self._start_or_wait(slot)
        elif now > self._stopping_since + self._settings.drain_timeout + STOP_SECONDS:
            raise InterlockError("workers did not stop in time and were killed; the events they recorded are kept")
        if now >= self._looked + TICK_SECONDS:
            self._looked = now
            self._preloaded.policy.reload_if_changed()  # for workers that are forked later
            if (self._settings.state_dir / VAULT).exists():
                keep_out_of_dumps()
        if self._health is not None:
            self._health.expire()
        self._hand_over.expire()

    def _retire(self, taker: int) -> None:
        """End once what is under way has ended: another process serves now, with this one's sockets."""
        log.info("another process serves now, this one drains and ends", pid=taker)
        self._stopping_since = time.monotonic()
        self._console.stop()
        self._lock.release()
        self._sockets.operators.handed_on = True
        if self._health is not None:
            self._health.close()
            self._health = None
        for slot in self._slots:
            if slot.worker is not None:
                slot.worker.send_signal(RETIRE_SIGNAL if slot.serves else signal.SIGTERM)

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
        slot.worker = fork_worker(slot.number, lambda channel: self._start_worker(slot, channel), lambda: None)

    def _start_worker(self, slot: WorkerSlot, channel: Channel) -> None:
        """Run a worker in its process; it keeps the sockets that it shall accept from, and closes all others."""
        accepting = self._sockets.accepting(slot.number, len(self._slots))
        self._close_inherited()
        self._console.close_in_worker()
        self._work(slot, channel, accepting)

    def _close_inherited(self) -> None:
        # In a worker: a copy of the lock or the ports would keep them taken after the supervisor has ended.
        self._lock.release()
        self._sockets.close_in_child()
        if self._health is not None:
            self._health.close()
        self._hand_over.close_in_child()
        if self._before is not None:
            self._before.close()
        self._signals.close()
        for other in (*(slot.worker for slot in self._slots), self._console.process):
            if other is not None:
                other.close_inherited()

    def _work(self, slot: WorkerSlot, channel: Channel, accepting: Sequence[socket.socket]) -> None:
        if len(self._slots) > 1:
            log_setup.name_worker(slot.number)
        context = WorkerContext(
            number=slot.number,
            logs=tuple(each.log_number for each in self._slots),
            preloaded=self._preloaded,
            addresses=self._sockets.listening.addresses,
            accepting=accepting,
            waits=self._before is not None and not self._ready,
            private=self._private_addresses(),
            listeners=self._sockets.operators,
            channel=channel,
            counters=self._counters.row(slot.number),
            shared_calls=self._shared_calls,
            console=self._console.url,
            shared_values=self._shared_values,
        )

        async def serve() -> None:
            await Worker(self._settings, context).run()

        event_loop.run(serve())

    def _private_addresses(self) -> list[Address]:
        return [address for address in (self._sockets.health_address, self._console.address) if address is not None]

    def _wait(self) -> None:
        """Wait for a signal, a worker or a health connection, at most until something is due."""
        poll, now = select.poll(), time.monotonic()
        poll.register(self._signals, select.POLLIN)
        workers = [slot.worker for slot in self._slots if slot.worker is not None]
        for worker in workers:
            poll.register(worker.channel, select.POLLIN)
            poll.register(worker.pidfd, select.POLLIN)
        # Until this proxy serves, the one before it answers these.
        for number, wanted in self._health.interests() if self._health and self._owns else ():
            poll.register(number, wanted)
        for number in (*self._console.interests(), *self._hand_over.interests()) if self._owns else ():
            poll.register(number, select.POLLIN)
        waits = [slot.due - now for slot in self._slots if slot.worker is None and self._stopping_since is None]
        for number, _ in poll.poll(1000 * max(0.0, min([TICK_SECONDS, *waits]))):
            self._attend(number, workers)

    def _attend(self, number: int, workers: list[WorkerProcess]) -> None:
        if number == self._signals.fileno():
            self._signals.drain()
        servers = (self._health, self._console, self._hand_over)
        if any(server is not None and server.attend(number) for server in servers):
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
        if self._stopping_since is not None or not (self._ready or self._all_serve()):
            return
        in_force = self._noted.policy_version if self._noted else self._preloaded.policy.current().version
        if not self._ready:
            gc_tuning.unmap_unused_files()
        running = self._running.take(self._started, in_force, self._console.url)
        if running != self._noted:
            log_policy(self._noted or running, running)
            self._noted = running
            try:
                run_file.write(self._settings.state_dir, running)
            except OSError as error:
                log.exception("cannot write the run file", error=str(error))
        if not self._ready:
            self._ready = True
            tell_ready(os.environ)
            on_ready(running)

    def _all_serve(self) -> bool:
        """Return whether all workers serve, and the sockets are this proxy's; take them over when it is time."""
        workers = [slot.worker for slot in self._slots if slot.worker is not None]
        if len(workers) == len(self._slots) and all(worker.prepared for worker in workers):
            for worker in workers:
                worker.go()
        if not all(slot.serves for slot in self._slots):
            return False
        if self._before is not None:
            self._own(self._before)
        return True

    def _own(self, before: TakeOver) -> None:
        """Take over: the other proxy ends, and what both had is this one's alone."""
        before.serves()
        self._before = None
        before.close()
        self._sockets.settle()
        self._lock.sign()
        self._sockets.operators.handed_on = self._hand_over.handed_on = False
        log.info("took over", pid=before.pid)

    @property
    def _owns(self) -> bool:
        return self._before is None
