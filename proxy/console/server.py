"""The operators' API on its sockets, served inside the daemon's event loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from proxy.console.api import make_app
from proxy.console.door import Door, TcpName
from proxy.console.sockets import SOCKET, Listeners

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from starlette.types import ASGIApp

    from proxy.desk import Desk
    from proxy.model import EventSink
    from proxy.operators import OperatorBook

log = structlog.get_logger("interlock.operators")

MAX_CONNECTIONS: Final = 32
CONNECTION_SECONDS: Final = 30.0
STOP_SECONDS: Final = 2


class Console:
    """Serves a desk to operators: on the state folder's socket, and on `listen` where it is given.

    Each listener has its own server, so that a crowd on one does not keep
    operators from the other.
    """

    def __init__(
        self,
        desk: Desk,
        book: OperatorBook,
        sink: EventSink,
        state_dir: Path,
        listen: tuple[str, int] | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        """Be ready to serve; with `listeners`, on sockets that other processes serve too and somebody else closes."""
        self._desk = desk
        self._book = book
        self._sink = sink
        self._state_dir = state_dir
        self._listen = listen
        self._shared = listeners
        self._own: Listeners | None = None
        self._servers: list[tuple[_Server, asyncio.Task[None]]] = []
        self.path = state_dir / SOCKET
        self.addresses: Sequence[tuple[str, int]] = listeners.addresses if listeners is not None else ()
        """The TCP addresses it listens on, which no agent may reach."""

    def start(self) -> None:
        """Listen, in the running event loop. Raises ConfigError where the address cannot be listened on."""
        if self._shared is None:
            self._own = Listeners(self._state_dir, self._listen)
        listeners = self._shared or self._own
        assert listeners is not None
        self.addresses = listeners.addresses
        if listeners.tcp is not None:
            name = TcpName(listeners.host, listeners.addresses[0][1])
            self._serve(listeners.tcp, Door(self._book, self._sink, name))
        self._serve(listeners.unix, Door(self._book, self._sink))

    async def stop(self) -> None:
        """Let requests under way finish, for a moment, and stop listening."""
        for server, _ in self._servers:
            server.should_exit = True
        await asyncio.gather(*(task for _, task in self._servers), return_exceptions=True)
        if self._own is not None:
            self._own.close()

    def _serve(self, sock: socket.socket, door: Door) -> None:
        server = _Server(_config(make_app(self._desk, door)))
        task = asyncio.create_task(server.serve([sock]))
        task.add_done_callback(_ended)
        self._servers.append((server, task))


class _Server(uvicorn.Server):
    """uvicorn as a guest: signals are the daemon's."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


class _Brief(H11Protocol):
    """A connection with an end: after a while it closes, or finishes the request under way and then closes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._end = self.loop.call_later(CONNECTION_SECONDS, self.shutdown)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        super().connection_lost(exc)


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_Brief,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the operators' API ended", error=str(error), exc_info=error)
