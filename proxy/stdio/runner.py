"""Runs one stdio server behind the gate: what comes on our stdin and stdout is what it would have been, decided."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

import structlog

from proxy.sandbox.process_reaper import FORWARDED, NOT_EXECUTABLE, NOT_FOUND
from proxy.sandbox.server_process import start_server
from proxy.stdio.session import Session
from proxy.wire.stdio_lines import LineSplitter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxy.core.model import Context
    from proxy.gate.request import Gate
    from proxy.sandbox.server_process import Launch, ServerProcess
    from proxy.stdio.pipes import DescriptorReader, DescriptorWriter
    from proxy.trace.live_trace import LiveTrace
    from proxy.wire.stdio_lines import TooLong

log = structlog.get_logger("interlock.stdio")

FLUSH_SECONDS = 5.0
# A server that is ending may live a little longer than its trace.
UNSEEN_SECONDS = 1.0


class StdioRunner:
    """One server, one client, one gate. `line_limit` bounds the client's lines, `answer_limit` the server's.

    `watch` follows the server's trace, where it is traced. A server whose trace ends before it does is ended.
    """

    def __init__(
        self,
        gate: Gate,
        context: Context,
        inlet: DescriptorReader,
        outlet: DescriptorWriter,
        *,
        line_limit: int,
        answer_limit: int,
        stop_seconds: float,
        watch: LiveTrace | None = None,
    ) -> None:
        self._gate = gate
        self._watch = watch
        self._context = context
        self._inlet = inlet
        self._outlet = outlet
        self._line_limit = line_limit
        self._answer_limit = answer_limit
        self._stop_seconds = stop_seconds
        self._session: Session | None = None
        self._telling: asyncio.Task[None] | None = None

    async def run(self, launch: Launch) -> int:
        """Serve until the server or the client ends; return the server's exit code."""
        server = await start_server(launch)
        watch = self._watch
        asked = watch.asked if watch else None
        self._session = session = Session(self._gate, self._context, self._outlet.write, server.write, asked)
        _pass_signals_on(server)
        out = asyncio.create_task(_pump(self._inlet.read, session.from_client, LineSplitter(self._line_limit)))
        back = asyncio.create_task(self._pump_back(server, session))
        ended = asyncio.create_task(server.ended())
        tasks: list[asyncio.Task[Any]] = [out, back, ended]
        if watch is not None:
            watch.begin(server)
            tasks.append(asyncio.create_task(self._guard(server, watch)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            code = await server.stop(self._stop_seconds)
            await asyncio.wait([back], timeout=FLUSH_SECONDS)
            return code if watch is None else await self._end(watch, code)
        finally:
            await server.clean_up()
            await _cancel(*tasks, *([self._telling] if self._telling else []))

    async def _pump_back(self, server: ServerProcess, session: Session) -> None:
        splitter, watch = LineSplitter(self._answer_limit), self._watch
        if watch is None:
            await _pump(server.read, session.from_server, splitter)
            return
        before = 0

        async def take(line: bytes | TooLong) -> None:
            nonlocal before
            end = splitter.ended
            await session.from_server(line)
            watch.told(before, end)
            before = end

        await _pump(server.read, take, splitter)

    async def _guard(self, server: ServerProcess, watch: LiveTrace) -> None:
        """End a server that runs on when nobody sees any more what it does, or that went for those who do."""
        await watch.ended.wait()
        if watch.tampering is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.ended(), UNSEEN_SECONDS)
                return
            log.error("the trace has ended and its server has not: ending it", server=self._context.server)
            self._gate.observed(self._context, None, {"phase": "end", "tracer_gone": True})
        else:
            log.error("the server tampers with its tracer: ending it", server=self._context.server, did=watch.tampering)
        server.kill()

    async def _end(self, watch: LiveTrace, code: int) -> int:
        """See the trace to its end; return the exit code, which strace gives another where a program cannot start."""
        await watch.end()
        if watch.started or watch.start_error is None:
            return code
        sys.stderr.write(f"interlock run: cannot start {self._context.server!r}: {watch.start_error}\n")
        return NOT_FOUND if watch.start_error in ("ENOENT", "ENOTDIR") else NOT_EXECUTABLE

    def tools_changed(self) -> None:
        """Tell the client that tools changed; while one is being told, once is enough."""
        if self._session is not None and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell(self._session))

    async def _tell(self, session: Session) -> None:
        with contextlib.suppress(OSError):  # a client that is gone need not be told
            await session.tools_changed()


def _pass_signals_on(server: ServerProcess) -> None:
    loop = asyncio.get_running_loop()
    for number in FORWARDED:
        loop.add_signal_handler(number, server.signal, number)


async def _pump(
    read: Callable[[], Awaitable[bytes]], take: Callable[[bytes | TooLong], Awaitable[None]], splitter: LineSplitter
) -> None:
    """Take line after line until there are no more, or whoever they are for takes no more."""
    try:
        while data := await read():
            for line in splitter.feed(data):
                await take(line)
        for line in splitter.end():
            await take(line)
    except OSError as error:
        log.info("a pipe has ended", error=str(error))
    except Exception as error:
        log.exception("ending after a failure", exc_info=error)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
