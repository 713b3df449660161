"""Watches a server that runs under strace: lines come in, and what was seen in each call is recorded.

All on the event loop, a piece at a time and with pauses, so that calls are
served meanwhile. A server that makes lines faster than they are read waits for
strace, and strace for us: nothing is lost, and no memory grows.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from array import array
from fcntl import ioctl
from pathlib import Path
from termios import FIONREAD
from typing import TYPE_CHECKING

import structlog

from proxy.trace.attribute import Attributor
from proxy.trace.normalise import EVERYBODY, Normaliser
from proxy.trace.observation_log import ObservationLog
from proxy.trace.strace import Syscall, TraceReader
from proxy.trace.tamper_guard import attacks_watcher, find_tracer, modifies, tracer_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.model import InFlightCall, JsonObject, Message
    from proxy.sandbox.server_process import ServerProcess
    from proxy.trace.attribute import AttributedObservation
    from proxy.trace.strace import Event
    from proxy.trace.tracer import TracePipe

    type Report = Callable[[InFlightCall | None, JsonObject], None]

log = structlog.get_logger("interlock.trace")

PIECE = 1 << 13
# Lines gather for so long: to wake up for each would cost the calls more than reading them.
PAUSE_SECONDS = 0.02
FLUSH_SECONDS = 10.0
HELD_SECONDS = 1.0
FIRST_READ_SECONDS = 0.002
# What is left of the trace when a server has ended comes within this.
DRAIN_SECONDS = 2.0
DRAIN_STEP = 0.005
MAX_CALLS = 1024
# A tracer that is found stopped so often, a look each HELD_SECONDS, was stopped.
STOPPED_LOOKS = 2
MAX_SAID = 240


class LiveTrace:
    """One server's trace. `report` takes what was seen: of a call, or of none. Begin it with `begin`.

    `own` is what is ours alone: the folder with the log, the pins and the keys, and the policy.
    """

    def __init__(
        self,
        channel: TracePipe,
        report: Report,
        notice: Callable[[AttributedObservation], None] | None = None,
        own: Sequence[Path] = (),
    ) -> None:
        self._own = tuple(str(each.resolve()) for each in own)
        self._channel = channel
        self._report = report
        self._notice = notice
        self._reader = TraceReader()
        self._normaliser = Normaliser(os.fsencode(Path.cwd()), _inherited())
        self._ledger = ObservationLog()
        self._attributor: Attributor | None = None
        self._calls: dict[str, InFlightCall] = {}
        self._open: dict[str, InFlightCall] = {}
        self._rest = ""
        self._stdin = -1
        self._progress = False
        self._stopped = self._drained = False
        self._pausing: asyncio.TimerHandle | None = None
        self.started = False
        """Whether the server's program was executed; else `start_error` says why not."""
        self.start_error: str | None = None
        self._ticks: tuple[asyncio.Task[None], ...] = ()
        self._reaper = self._tracer = self._stopped_looks = 0
        self._guards: frozenset[int] = frozenset({os.getpid(), -os.getpgrp(), EVERYBODY})
        self.tampering: str | None = None
        """What the server did to its watchers; it is not to be trusted, and neither is what is seen of it."""
        self.ended = asyncio.Event()
        """The trace has ended, or is not to be trusted any more."""

    def begin(self, server: ServerProcess) -> None:
        """Take lines from now on."""
        self._stdin, stdin, stdout = server.pipes()
        self._reaper = self._normaliser.group = server.pid
        self._attributor = Attributor(stdin, stdout)
        self._listen()
        if self._channel.openings.descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._channel.openings.descriptor, self._look_at_pipe)
        self._ticks = asyncio.create_task(self._keep_time()), asyncio.create_task(self._keep_watch())

    def asked(self, message: Message, in_flight: InFlightCall, size: int) -> None:
        """Learn that a message is about to be written to the server."""
        if self._attributor is None:
            return
        if message.id is None or message.method is None:
            self._attributor.passed(size)
            return
        self._calls[in_flight.call_id] = self._open[in_flight.call_id] = in_flight
        arguments = message.params.get("arguments", message.params)
        self._attributor.asked(in_flight.call_id, message.method, arguments, size, time.time())

    def told(self, start: int, end: int) -> None:
        """Learn that the line of the server's at these bytes was taken; calls that it answered are over."""
        if self._attributor is None:
            return
        now = time.time()
        for call_id in [call_id for call_id, in_flight in self._open.items() if in_flight.closed]:
            del self._open[call_id]
            self._attributor.answered(call_id, start, now)
        self._take(self._attributor.read(end, now))

    async def end(self) -> None:
        """Take what is left, and record it. The server has ended."""
        self._stop()
        deadline = time.monotonic() + DRAIN_SECONDS
        while not self._drained and time.monotonic() < deadline:
            self._readable()
            await asyncio.sleep(0 if self._progress else DRAIN_STEP)
        if self._attributor is not None:
            self._take(self._attributor.flush())
        for name in self._ledger.names():
            self._record(name)
        if self._reader.unparsed or self._ledger.dropped:
            self._report(
                None, {"phase": "end", "unparsed_lines": self._reader.unparsed, "dropped": self._ledger.dropped}
            )
        self._channel.close()

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._channel.descriptor, self._readable)

    def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._channel.descriptor)
        self._pausing = loop.call_later(PAUSE_SECONDS, self._listen)

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._channel.descriptor)
        asyncio.get_running_loop().remove_reader(self._channel.openings.descriptor)
        self._stopped = True
        if self._pausing is not None:
            self._pausing.cancel()
        for tick in self._ticks:
            tick.cancel()

    def _readable(self) -> None:
        try:
            self._progress = False
            data = os.read(self._channel.descriptor, PIECE)
            self._channel.hide()
            if data:
                self._progress = True
                self._take_lines(data)
                if len(data) < PIECE and not self._stopped:
                    self._pause()
                return
        except BlockingIOError:
            return
        except Exception as error:
            log.exception("the trace cannot be followed", exc_info=error)
        asyncio.get_running_loop().remove_reader(self._channel.descriptor)
        self._reader.unparsed += bool(self._rest)
        self._drained = True
        self.ended.set()

    def _take_lines(self, data: bytes) -> None:
        assert self._attributor is not None
        *lines, self._rest = (self._rest + data.decode("latin-1")).split("\n")
        for line in lines:
            event = self._reader.take(line)
            seen = self._normaliser.take(event)
            if not self.started:
                self._look_for_start(event)
            for each in seen:
                if attacks_watcher(each, self._guards) or modifies(each, self._own):
                    self._tampered(f"{each.action} {each.path}", each.line)
            if seen or type(event) is Syscall:
                self._take(self._attributor.take(event, seen))

    def _look_for_start(self, event: Event) -> None:
        """See whether the server's program could be executed at all."""
        if type(event) is Syscall and event.name == "execve":
            self.started = event.ok
            self.start_error = event.error
            self._tracer = find_tracer(self._reaper)
            if self._tracer:
                self._guards |= {self._tracer, -self._tracer}

    def _look_at_pipe(self) -> None:
        """See whether somebody else than strace opened the pipe: to write lines, or to take them away."""
        if self._channel.openings.count() > 1:
            self._tampered("somebody opened the trace")

    def _look_at_tracer(self) -> None:
        """See whether strace still can see. Where it has ended, its pipe says so."""
        state = tracer_state(self._tracer) if self._tracer else None
        self._stopped_looks = self._stopped_looks + 1 if state == "stopped" else 0
        if state == "traced" or self._stopped_looks >= STOPPED_LOOKS:
            self._tampered(f"strace is {state}")

    def _tampered(self, what: str, line: str | None = None) -> None:
        """Take note, once, that the server went for those who watch it, with the calls that were under way."""
        if self.tampering is not None:
            return
        self.tampering = what[:MAX_SAID]
        calls = list(self._open.values())
        found: JsonObject = {"phase": "end", "tampering": self.tampering}
        if line is not None:
            found["evidence"] = line[:MAX_SAID]
        if len(calls) > 1:
            found["candidates"] = [each.call_id for each in calls]
        self._report(calls[0] if len(calls) == 1 else None, found)
        self.ended.set()

    def _take(self, told: list[AttributedObservation]) -> None:
        """Write down what was told. The one place that every observation passes."""
        assert self._attributor is not None
        for each in told:
            if self._notice is not None:
                self._notice(each)
            self._ledger.take(each)
            if each.attribution.phase != "startup":
                self._record("startup")
        for call_id in self._attributor.closed():
            self._record(call_id)

    def _record(self, name: str) -> None:
        page = self._ledger.close(name)
        if page is not None:
            self._report(self._calls.get(name), page)
        while len(self._calls) > MAX_CALLS:
            del self._calls[next(iter(self._calls))]

    async def _keep_time(self) -> None:
        """See when the server begins to read, and that nothing is held back for long."""
        assert self._attributor is not None
        unread = array("i", [0])
        while self._attributor.waiting:
            await asyncio.sleep(FIRST_READ_SECONDS)
            with contextlib.suppress(OSError):  # closed: there is nothing more to wait for
                ioctl(self._stdin, FIONREAD, unread)
            if self._calls and not unread[0]:
                self._attributor.started(time.time() - FIRST_READ_SECONDS)
        while True:
            await asyncio.sleep(HELD_SECONDS)
            self._take(self._attributor.flush(time.time() - HELD_SECONDS))
            past = time.time() - FLUSH_SECONDS
            for name in [name for name in self._ledger.names() if self._ledger.began(name) < past]:
                self._record(name)

    async def _keep_watch(self) -> None:
        """See that strace still can see."""
        while True:
            await asyncio.sleep(HELD_SECONDS)
            self._look_at_tracer()


def _inherited() -> frozenset[bytes]:
    """Return the file behind our stderr, which is the server's too: what it says there is no file of its own."""
    try:
        return frozenset({os.fsencode(Path("/proc/self/fd/2").readlink())})
    except OSError:
        return frozenset()
