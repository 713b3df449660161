"""Follows the trace of a running server: reads strace's lines and records what was observed in each call.

Everything is done on the event loop, in pieces and with pauses, so that calls are served meanwhile. A server that makes
lines faster than they are read waits for strace, and strace for us: nothing is lost, and no memory grows.
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

from proxy.trace.attribute import AttributedObservation, Attributor
from proxy.trace.normalise import EVERYBODY, Normaliser
from proxy.trace.observation_log import ObservationLog
from proxy.trace.strace import Syscall, TraceReader, Unparsed, is_wake
from proxy.trace.tamper_guard import attacks_watcher, find_tracer, modifies, tracer_state
from proxy.trace.tracer import as_we_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from proxy.core.model import InFlightCall, JsonObject, Message
    from proxy.sandbox.server_process import ServerProcess
    from proxy.trace.attribute import Attribution
    from proxy.trace.capability import Observation
    from proxy.trace.tracer import TracePipe

    type Report = Callable[[InFlightCall | None, JsonObject], None]
    type Judge = Callable[[Observation, Attribution, Sequence[InFlightCall]], None]

log = structlog.get_logger("interlock.trace")

PIECE = 1 << 13
# Lines are collected for so long: waking up for each would slow the calls down more than reading them does.
PAUSE_SECONDS = 0.02
# While a call is so young, its trace stays in the pipe as long as there is room: reading it would delay the answer.
YOUNG_SECONDS = 0.25
ROOM = 1 << 19
FLUSH_SECONDS = 10.0
HELD_SECONDS = 1.0
FIRST_READ_SECONDS = 0.002
# An answer whose trace does not come within this is not passed on, where rules ask what was done before it.
SETTLE_SECONDS = 10.0
# What is left of the trace when a server has ended comes within this.
DRAIN_SECONDS = 2.0
DRAIN_STEP = 0.005
MAX_CALLS = 1024
# A tracer is stopped for a moment now and then; one that is so at two checks in a row was stopped on purpose.
STOPPED_LOOKS = 2
MAX_EVIDENCE = 240


class LiveTrace:
    """One server's trace. `report` receives what was observed, with its call or None."""

    def __init__(
        self,
        channel: TracePipe,
        report: Report,
        own: Sequence[Path] = (),
        settle_seconds: float = SETTLE_SECONDS,
        *,
        mark: str | None = None,
    ) -> None:
        # A sandbox is set up by the traced process itself; the server begins after the line with this mark. No line of
        # the server's can come before it.
        self._mark = mark
        self._sandboxed = mark is not None
        # The files that no server may write: the state folder with log, pins and keys, and the policy.
        self._own = tuple(str(each.resolve()) for each in own)
        self._channel = channel
        self._report = report
        self._reader = TraceReader()
        inherited: set[bytes] = set()
        # The file behind our stderr is the server's too: its log lines there are no file access.
        with contextlib.suppress(OSError):
            inherited.add(os.fsencode(Path("/proc/self/fd/2").readlink()))
        self._normaliser = Normaliser(os.fsencode(Path.cwd()), frozenset(inherited), forks=True)
        self._log = ObservationLog()
        self._attributor: Attributor | None = None
        self._calls: dict[str, InFlightCall] = {}
        self._open: dict[str, InFlightCall] = {}
        self._full = 2 * MAX_CALLS  # so many calls are known when some are forgotten
        self._collecting = 0.0  # since when lines are left in the pipe
        self._rest = ""
        self._server: ServerProcess | None = None
        self._progress = False
        self._stopped = self._drained = False
        self._pausing: asyncio.TimerHandle | None = None
        self.started = False  # whether the server's program was executed; else `start_error` says why not
        self.start_error: str | None = None
        self.judge: Judge | None = None  # receives everything observed, with the calls that it may belong to
        self.holds_answers: Callable[[], bool] = _never  # whether each answer waits until its trace was read
        self._settle_seconds = settle_seconds
        self._awaited: tuple[int, asyncio.Future[None]] | None = None  # the output whose trace somebody waits for
        self.doubt: str | None = None  # why nobody can know any more what the server did before it wrote something
        self._ticks: tuple[asyncio.Task[None], ...] = ()
        self._reaper = self._tracer = 0
        self._guards: frozenset[int] = frozenset({os.getpid(), -os.getpgrp(), EVERYBODY})
        # What the server did to its tracer or to us; from then on neither it nor its trace is to be trusted.
        self.tampering: str | None = None
        self.ended = asyncio.Event()  # set when the trace has ended, or is not to be trusted any more

    def keep_hidden(self, is_hidden: Callable[[Observation], bool]) -> None:
        """Record also the files that a server did not find, where `is_hidden` says that its sandbox hides them."""
        self._log.is_hidden = is_hidden

    def begin(self, server: ServerProcess) -> None:
        self._server = server
        self._reaper = self._normaliser.group = server.pid
        self._attributor = Attributor(server.stdout_inode)
        self._listen()
        if self._channel.openings.descriptor >= 0:
            asyncio.get_running_loop().add_reader(self._channel.openings.descriptor, self._look_at_pipe)
        self._ticks = asyncio.create_task(self._keep_time()), asyncio.create_task(self._watch_tracer())

    def request_sent(self, message: Message, in_flight: InFlightCall) -> None:
        """Note that a message is about to be written to the server."""
        if self._attributor is None or message.id is None or message.method is None:
            return
        self._look_at_input()
        if len(self._calls) >= self._full:
            self._forget()
        self._calls[in_flight.call_id] = self._open[in_flight.call_id] = in_flight
        arguments = message.params.get("arguments", message.params)
        self._attributor.request_sent(in_flight.call_id, message.method, arguments, time.time())

    def response_read(self, start: int, end: int) -> None:
        """Note that the server's line at these bytes was handled; the calls that it answered have ended."""
        if self._attributor is None:
            return
        now = time.time()
        self._look_at_input()
        for call_id in [call_id for call_id, in_flight in self._open.items() if in_flight.closed]:
            del self._open[call_id]
            self._attributor.call_ended(call_id, start, now)
            self._attributor.reading_began()
        self._take(self._attributor.output_read(end))

    def _look_at_input(self) -> None:
        """Find out whether the server has begun to read: what it does before that is its start, and no call's doing.

        Reads are not traced (they would double the cost). But what is in the pipe shows whether any of it is gone.
        """
        attributor, now = self._attributor, time.time()
        if attributor is None or self._server is None or not attributor.awaits_first_read:
            return
        if self._server.has_read():
            attributor.reading_began()
        else:
            attributor.not_read_until(now)

    async def settle(self, end: int) -> bool:
        """Return once everything is judged that the server did before it wrote byte `end` of its output.

        False where that cannot be known, or not in time. A thread runs on after a traced system call only once strace
        has written its line, so what could have had an influence on an answer is in the trace before the system call
        that wrote the answer. Its line is what this waits for.
        """
        assert self._attributor is not None
        if self.doubt is None and self._attributor.written < end and not self._drained:
            await self._wait_for(end)
        if self.doubt is not None or self._attributor.written < end:
            return False
        self._look_at_input()
        self._take(self._attributor.release_before(end))
        for each in self._attributor.undecided() if self.judge is not None else ():
            self._judge(each)
        return self.doubt is None

    async def _wait_for(self, end: int) -> None:
        loop = asyncio.get_running_loop()
        awaited = loop.create_future()
        self._awaited = end, awaited
        timer = loop.call_later(self._settle_seconds, _finish, awaited)
        try:
            if self._pausing is not None:
                self._pausing.cancel()
                self._listen()
            self._readable()
            await awaited
        finally:
            timer.cancel()
            self._awaited = None

    async def end(self) -> None:
        """Read the rest of the trace of a server that has ended, and record it."""
        self._stop()
        deadline = time.monotonic() + DRAIN_SECONDS
        while not self._drained and time.monotonic() < deadline:
            self._readable()
            await asyncio.sleep(0 if self._progress else DRAIN_STEP)
        if self._attributor is not None:
            self._take(self._attributor.flush())
        for name in self._log.names():
            self._record(name)
        if self._reader.unparsed or self._log.dropped:
            self._report(None, {"phase": "end", "unparsed_lines": self._reader.unparsed, "dropped": self._log.dropped})
        self._channel.close()

    def _listen(self) -> None:
        self._pausing = None
        asyncio.get_running_loop().add_reader(self._channel.descriptor, self._lines_came)

    def _lines_came(self) -> None:
        """Begin to collect lines; the first ones, and those that somebody waits for, are read at once."""
        if self._awaited is not None or not self.started:
            self._readable()
        else:
            self._collect()

    def _collect(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._channel.descriptor)
        self._collecting = loop.time()
        self._pausing = loop.call_later(PAUSE_SECONDS, self._read_collected)

    def _read_collected(self) -> None:
        if self._may_wait():
            self._pausing = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._read_collected)
        else:
            self._listen()
            self._readable()

    def _may_wait(self) -> bool:
        """Return whether the lines may stay in the pipe, because a call is under way that was made a moment ago."""
        # Never for long: what attacks us is in them too.
        now = asyncio.get_running_loop().time()
        # Nor where an answer is to wait until its trace was read: the less is left then, the better.
        if self.holds_answers() or not self._open or now - self._collecting > YOUNG_SECONDS:
            return False
        unread = array("i", [0])
        with contextlib.suppress(OSError):
            ioctl(self._channel.descriptor, FIONREAD, unread)
        return unread[0] < ROOM

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._channel.descriptor)
        asyncio.get_running_loop().remove_reader(self._channel.openings.descriptor)
        self._stopped = True
        if self._pausing is not None:
            self._pausing.cancel()
        for tick in self._ticks:
            tick.cancel()

    def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._progress = False
            data = os.read(self._channel.descriptor, PIECE)
            self._channel.hide()  # strace has it open: from now on nobody else can open it by its name
            if data:
                self._progress = True
                self._look_at_input()
                self._take_lines(data)
                self._pause_reading(len(data) < PIECE)
                return
        except BlockingIOError:
            return
        except Exception as error:
            # A line that breaks us must not leave a server running unobserved: this ends the trace, and so the server.
            log.exception("the trace cannot be read", exc_info=error)
        loop.remove_reader(self._channel.descriptor)
        if self._pausing is not None:
            self._pausing.cancel()
        self._reader.unparsed += bool(self._rest)
        self._drained = True
        self.ended.set()
        if self._awaited is not None:
            _finish(self._awaited[1])

    def _pause_reading(self, empty: bool) -> None:  # noqa: FBT001  its caller names it
        """Let lines gather in the pipe, unless somebody waits for one of them."""
        if self._awaited is not None:
            end, awaited = self._awaited
            assert self._attributor is not None
            if self._attributor.written < end:
                return
            _finish(awaited)
        if empty and self.started and not self._stopped and self._pausing is None:
            self._collect()

    def _server_lines(self, data: bytes) -> Iterator[str]:
        *lines, self._rest = (self._rest + data.decode("latin-1")).split("\n")
        for line in lines:
            if self._mark is not None:
                self._mark = None if self._mark in line else self._mark
            elif not is_wake(line):
                yield as_we_number(line) if self._sandboxed else line

    def _take_lines(self, data: bytes) -> None:
        assert self._attributor is not None
        for line in self._server_lines(data):
            event = self._reader.take(line)
            seen = self._normaliser.take(event)
            if not self.started and type(event) is Syscall and event.name == "execve":
                # The first execve shows whether the server's program could be executed.
                self.started = event.ok
                self.start_error = event.error
                # Queried from the kernel: strace detaches itself (-DDD), so it is not the process that we started.
                self._tracer = find_tracer(self._reaper)
                if self._tracer:
                    self._guards |= {self._tracer, -self._tracer}
            # Before attribution, which may hold an observation back: what attacks us is acted on at once.
            for each in seen:
                if attacks_watcher(each, self._guards) or modifies(each, self._own):
                    self._tampered(f"{each.action} {each.path}", each.line)
            if type(event) is Syscall and "<pipe:" in event.rest and self._attributor.reads_output(event):
                self.doubt = "the server opened its own stdout for reading"
            elif type(event) is Unparsed:
                self.doubt = "a line of the trace cannot be read"
            if seen or type(event) is Syscall:
                self._take(self._attributor.take(event, seen))

    def _look_at_pipe(self) -> None:
        # strace's own is the first; a second could write forged lines, or take real ones away.
        if self._channel.openings.count() > 1:
            self._tampered("another process opened the trace pipe")

    def _tampered(self, what: str, line: str | None = None) -> None:
        """Report once that the server attacks its tracer or us, with the calls that were open."""
        if self.tampering is not None:
            return
        self.tampering = what[:MAX_EVIDENCE]
        calls = list(self._open.values())
        found: JsonObject = {"phase": "end", "tampering": self.tampering}
        if line is not None:
            found["evidence"] = line[:MAX_EVIDENCE]
        if len(calls) > 1:
            found["candidates"] = [each.call_id for each in calls]
        self._report(calls[0] if len(calls) == 1 else None, found)
        self.ended.set()

    def _take(self, attributed: list[AttributedObservation]) -> None:
        """Log observations and record the calls that are complete. Every observation passes here."""
        assert self._attributor is not None
        for each in attributed:
            if self.judge is not None:
                self._judge(each)
            self._log.take(each)
            if each.attribution.phase != "startup":
                self._record("startup")
        for call_id in self._attributor.take_closed():
            self._record(call_id)

    def _judge(self, each: AttributedObservation) -> None:
        assert self.judge is not None
        seen, whose = each
        calls = whose.calls if whose.guessed else whose.calls[:1]
        self.judge(seen, whose, [self._calls[call_id] for call_id in calls if call_id in self._calls])

    def _record(self, name: str) -> None:
        record = self._log.close(name)
        if record is not None:
            self._report(self._calls.get(name), record)

    def _forget(self) -> None:
        """Forget the oldest calls of those that are over in the trace too; some are kept for what is done late."""
        assert self._attributor is not None
        over = [call_id for call_id in self._calls if not self._attributor.follows(call_id)]
        for call_id in over[:-MAX_CALLS]:
            del self._calls[call_id]
        self._full = len(self._calls) + MAX_CALLS

    async def _keep_time(self) -> None:
        """Find out when the server begins to read, then see that nothing is held back for long."""
        assert self._attributor is not None
        while self._attributor.awaits_first_read:
            await asyncio.sleep(FIRST_READ_SECONDS)
            self._look_at_input()
        while True:
            await asyncio.sleep(HELD_SECONDS)
            self._take(self._attributor.flush(time.time() - HELD_SECONDS))
            for name in self._log.names(before=time.time() - FLUSH_SECONDS):
                self._record(name)

    async def _watch_tracer(self) -> None:
        stopped = 0
        while True:
            await asyncio.sleep(HELD_SECONDS)
            # "gone" is reported by the end of the pipe, unless a supervisor writes to it as well.
            state = tracer_state(self._tracer) if self._tracer else None
            if state == "gone" and self._channel.writer is not None:
                self.ended.set()
                return
            stopped = stopped + 1 if state == "stopped" else 0
            if state == "traced" or stopped >= STOPPED_LOOKS:
                self._tampered(f"strace is {state}")


def _never() -> bool:
    return False


def _finish(awaited: asyncio.Future[None]) -> None:
    if not awaited.done():
        awaited.set_result(None)
