"""Runs one stdio server behind the gate: what comes on our stdin and stdout is what it would have been, decided."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

import structlog

from proxy.trace.launch import start
from proxy.trace.session import Session
from proxy.wire.lines import LineSplitter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxy.gate import Gate
    from proxy.model import Context
    from proxy.trace.launch import Launch, Server
    from proxy.trace.pipes import Inlet, Outlet
    from proxy.wire.lines import TooLong

log = structlog.get_logger("interlock.stdio")

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
FLUSH_SECONDS = 5.0


class Runner:
    """One server, one client, one gate. `line_limit` bounds the client's lines, `answer_limit` the server's."""

    def __init__(
        self,
        gate: Gate,
        context: Context,
        inlet: Inlet,
        outlet: Outlet,
        *,
        line_limit: int,
        answer_limit: int,
        stop_seconds: float,
    ) -> None:
        self._gate = gate
        self._context = context
        self._inlet = inlet
        self._outlet = outlet
        self._line_limit = line_limit
        self._answer_limit = answer_limit
        self._stop_seconds = stop_seconds
        self._session: Session | None = None
        self._telling: asyncio.Task[None] | None = None

    async def run(self, launch: Launch) -> int:
        """Serve until the server or the client ends; give the server's exit code."""
        server = await start(launch)
        self._session = session = Session(self._gate, self._context, self._outlet.write, server.write)
        _pass_signals_on(server)
        out = asyncio.create_task(_pump(self._inlet.read, session.from_client, self._line_limit))
        back = asyncio.create_task(_pump(server.read, session.from_server, self._answer_limit))
        ended = asyncio.create_task(server.ended())
        try:
            await asyncio.wait([out, back, ended], return_when=asyncio.FIRST_COMPLETED)
            code = await server.stop(self._stop_seconds)
            await asyncio.wait([back], timeout=FLUSH_SECONDS)
            return code
        finally:
            await server.clean_up()
            await _cancel(out, back, ended, *([self._telling] if self._telling else []))

    def tools_changed(self) -> None:
        """Tell the client that tools changed; while one is being told, once is enough."""
        if self._session is not None and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell(self._session))

    async def _tell(self, session: Session) -> None:
        with contextlib.suppress(OSError):  # a client that is gone need not be told
            await session.tools_changed()


def _pass_signals_on(server: Server) -> None:
    loop = asyncio.get_running_loop()
    for number in FORWARDED:
        loop.add_signal_handler(number, server.signal, number)


async def _pump(
    read: Callable[[], Awaitable[bytes]], take: Callable[[bytes | TooLong], Awaitable[None]], limit: int
) -> None:
    """Take line after line until there are no more, or whoever they are for takes no more."""
    splitter = LineSplitter(limit)
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


async def _cancel(*tasks: asyncio.Task[int] | asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
