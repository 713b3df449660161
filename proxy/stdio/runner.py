"""Runs one stdio server behind the gate, between our stdin and stdout and the server's."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from proxy.core.model import Call
from proxy.gate.behaviour import denial_of
from proxy.gate.halts import covers
from proxy.sandbox.process_reaper import FORWARDED, NOT_EXECUTABLE, NOT_FOUND
from proxy.sandbox.refusal import NOT_CONFINED, SandboxRefusedError
from proxy.stdio.session import Session
from proxy.trace.observed_act import as_act
from proxy.wire.stdio_lines import LineSplitter, TooLong

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from proxy.core.halts import Halt
    from proxy.core.model import Context, InFlightCall, JsonObject, Message
    from proxy.gate.behaviour import Behaviour
    from proxy.gate.gate import Gate
    from proxy.sandbox.server_process import ServerProcess
    from proxy.stdio.bound_files import BoundFiles
    from proxy.stdio.bound_hosts import BoundHosts
    from proxy.stdio.pipes import DescriptorReader, DescriptorWriter
    from proxy.stdio.session import OnForward
    from proxy.trace.attribute import Attribution
    from proxy.trace.capability import Observation
    from proxy.trace.live_trace import LiveTrace

log = structlog.get_logger("interlock.stdio")

FLUSH_SECONDS = 5.0
# A server that is exiting may live a little longer than its trace.
UNSEEN_SECONDS = 1.0
MAX_EVIDENCE = 240


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


@dataclass(slots=True)
class StdioRunner:
    """One server, one client, one gate. `line_limit` bounds the client's lines, `answer_limit` the server's."""

    gate: Gate
    context: Context
    inlet: DescriptorReader
    outlet: DescriptorWriter
    line_limit: int
    answer_limit: int
    stop_seconds: float
    bound: BoundFiles | None = None  # where its files are bound to its calls
    bound_hosts: BoundHosts | None = None  # where its hosts are
    watch: LiveTrace | None = None  # where it is traced; a server whose trace ends before it does is killed
    behaviour: Behaviour | None = None  # where rules may judge what the server does
    say: Callable[[str], None] = _say
    release: Callable[[], Awaitable[JsonObject]] | None = None  # of a sandboxed server, which waits for it
    _session: Session | None = None
    _server: ServerProcess | None = None
    _notifying: asyncio.Task[None] | None = None
    _ending: asyncio.Task[None] | None = None

    async def run(self, server: ServerProcess) -> int:
        """Serve until the server or the client ends; return the server's exit code."""
        self._server = server
        if self.release is not None and not await self._let_begin(server, self.release):
            return NOT_CONFINED
        watch = self.watch
        on_request = self._on_request()
        self._session = session = Session(self.gate, self.context, self.outlet.write, server.write, on_request)
        if self.behaviour is not None:
            self._judge_acts(session, self.behaviour)
        for number in FORWARDED:
            asyncio.get_running_loop().add_signal_handler(number, server.signal, number)
        out = asyncio.create_task(_pump(self.inlet.read, session.from_client, LineSplitter(self.line_limit)))
        back = asyncio.create_task(self._pump_back(server, session))
        ended = asyncio.create_task(server.ended())
        tasks: list[asyncio.Task[Any]] = [out, back, ended]
        if watch is not None:
            watch.begin(server)
            tasks.append(asyncio.create_task(self._guard(server, watch)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            session.close()
            code = await server.stop(self.stop_seconds)
            # The last responses may still be in the pipe, and the client is to have them.
            await asyncio.wait([back, *([self._ending] if self._ending else [])], timeout=FLUSH_SECONDS)
            return code if watch is None else await self._end(watch, code)
        finally:
            await server.clean_up()
            tasks += [task for task in (self._notifying, self._ending) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _let_begin(self, server: ServerProcess, release: Callable[[], Awaitable[JsonObject]]) -> bool:
        """Return whether the sandbox holds, so that the server may begin; else it never does."""
        try:
            self.context = replace(self.context, sandbox=await release())
        except SandboxRefusedError as error:
            self.say(f"interlock run: {self.context.server!r} was not started: {error}")
            await server.clean_up()
            return False
        return True

    def _on_request(self) -> OnForward | None:
        hooks = [each.request_sent for each in (self.watch, self.bound, self.bound_hosts) if each is not None]
        if len(hooks) < 2:
            return hooks[0] if hooks else None

        def sent(message: Message, in_flight: InFlightCall) -> None:
            for hook in hooks:
                hook(message, in_flight)

        return sent

    def kill_server(self) -> None:
        if self._server is not None:
            self._server.kill()

    async def _pump_back(self, server: ServerProcess, session: Session) -> None:
        splitter, watch, behaviour = LineSplitter(self.answer_limit), self.watch, self.behaviour
        before = 0

        async def take(line: bytes | TooLong) -> None:
            nonlocal before
            end = splitter.ended
            if behaviour is not None and behaviour.holds_answers:
                await _hold(watch, behaviour, end)
            await session.from_server(line)
            if watch is not None:
                # Offsets in the server's output, by which the trace knows which response a system call came before.
                watch.response_read(before, end)
            before = end

        await _pump(server.read, take, splitter)

    def _judge_acts(self, session: Session, behaviour: Behaviour) -> None:
        session.bars_messages = lambda: behaviour.bars_messages
        if self.watch is not None:
            self.watch.judge = partial(_judge, behaviour)
            self.watch.holds_answers = lambda: behaviour.holds_answers

    def end_server(self, rule: str) -> None:
        """End the server for what it was seen to do, and refuse every call under way."""
        if self._server is None or self._session is None or self._ending is not None:
            return
        log.error("ending a server for what it does", server=self.context.server, rule=rule)
        self._server.kill()
        self._ending = asyncio.create_task(self._refuse_all(self._session))

    async def _refuse_all(self, session: Session) -> None:
        with contextlib.suppress(OSError):  # the client is gone
            await session.shut(denial_of)

    async def _guard(self, server: ServerProcess, watch: LiveTrace) -> None:
        """Kill a server that runs on after its trace has ended, or that attacked its tracer."""
        await watch.ended.wait()
        if watch.tampering is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.ended(), UNSEEN_SECONDS)
                return
            log.error("killing a server whose trace has ended before it", server=self.context.server)
            self.gate.recorder.observed(self.context, None, {"phase": "end", "tracer_gone": True})
        else:
            log.error("killing a server that tampers with its tracer", server=self.context.server, did=watch.tampering)
        server.kill()

    async def _end(self, watch: LiveTrace, code: int) -> int:
        """Read the trace to its end; return the exit code."""
        await watch.end()
        # strace has an exit code of its own where it cannot start the program; ours are a shell's.
        if watch.started or watch.start_error is None:
            return code
        self.say(f"interlock run: cannot start {self.context.server!r}: {watch.start_error}")
        return NOT_FOUND if watch.start_error in ("ENOENT", "ENOTDIR") else NOT_EXECUTABLE

    def cut(self, halt: Halt) -> None:
        """End the server, and with it every call under way, where a halt is about one of them or about all of it."""
        calls = [each for each in self.gate.in_flight.under_way() if covers(halt, each.call)]
        session = Call("", self.context.server, self.context.principal.agent)
        if self._server is None or not (calls or covers(halt, session)):
            return
        for in_flight in calls:
            self.gate.responses.abandon(in_flight, "halted")
        self._server.kill()

    def tools_changed(self) -> None:
        """Notify the client that tools changed, unless such a notification is being written already."""
        if self._session is not None and (self._notifying is None or self._notifying.done()):
            self._notifying = asyncio.create_task(self._notify(self._session))

    async def _notify(self, session: Session) -> None:
        with contextlib.suppress(OSError):  # the client is gone
            await session.tools_changed()


async def _hold(watch: LiveTrace | None, behaviour: Behaviour, end: int) -> None:
    """Return once it is known what the server did before byte `end` of its output; bar its calls where it is not."""
    if watch is None:
        behaviour.bar_all("the server is not traced")
    elif not await watch.settle(end):
        behaviour.bar_all(watch.doubt or "the trace of the answer did not come")
    behaviour.bar_owed()


def _judge(behaviour: Behaviour, seen: Observation, whose: Attribution, calls: Sequence[InFlightCall]) -> None:
    if not behaviour.watches:
        return
    detail: JsonObject = {"evidence": seen.line[:MAX_EVIDENCE]}
    if whose.confidence < 1 or whose.late:
        detail |= {"confidence": round(whose.confidence, 3), "how": whose.how}
        detail |= {"candidates": list(whose.calls)} if len(whose.calls) > 1 else {}
        detail |= {"late": True} if whose.late else {}
    behaviour.seen(as_act(seen), whose.phase, calls, detail)


async def _pump(
    read: Callable[[], Awaitable[bytes]], take: Callable[[bytes | TooLong], Awaitable[None]], splitter: LineSplitter
) -> None:
    """Pass lines from `read` to `take` until there are no more, or `take` cannot write any more."""
    try:
        while data := await read():
            for line in splitter.feed(data):
                await take(line)
        for line in splitter.end():
            await take(line)
    except OSError as error:
        log.info("a pipe was closed", error=str(error))
    except Exception as error:
        # Nothing is passed on undecided: a failure ends this direction, and with it the server.
        log.exception("ending the connection after an unexpected error", exc_info=error)
