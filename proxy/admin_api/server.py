"""Serves the admin API in a worker's event loop, on a unix socket and optionally on TCP.

Agents cannot reach it: the socket's folder is the owner's, the TCP address is denied by the egress guard.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

import structlog

from proxy.admin_api.auth import ListenerName, OperatorAuth
from proxy.admin_api.sockets import SOCKET, Listeners

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

    import uvicorn

    from proxy.admin_api.halts import HaltControl
    from proxy.admin_api.rule_review import RuleReview
    from proxy.core.interfaces import EventSink
    from proxy.identity.operator_verifier import OperatorVerifier
    from proxy.identity.token_file import OperatorTokens
    from proxy.twophase.review import ProposalReview

log = structlog.get_logger("interlock.operators")


class AdminApiServer:
    """Serves a ProposalReview to operators: on the state folder's socket, and on `listen` if it is given."""

    def __init__(
        self,
        review: ProposalReview,
        tokens: OperatorTokens,
        sink: EventSink,
        state_dir: Path,
        listen: tuple[str, int] | None = None,
        listeners: Listeners | None = None,
        halts: HaltControl | None = None,
        rules: RuleReview | None = None,
        verifier: OperatorVerifier | None = None,
    ) -> None:
        """Prepare to serve; with `listeners`, on sockets that other workers serve too and the supervisor closes."""
        self._halts = halts
        self._rules = rules
        self._verifier = verifier
        self._review = review
        self._tokens = tokens
        self._sink = sink
        self._state_dir = state_dir
        self._listen = listen
        self._shared = listeners
        self._own: Listeners | None = None
        self._served: list[_LazyServer] = []
        self.path = state_dir / SOCKET
        # For the egress guard, which denies these to agents.
        self.addresses: Sequence[tuple[str, int]] = listeners.addresses if listeners is not None else ()

    def start(self) -> None:
        """Listen in the running event loop. Raises ConfigError if it cannot."""
        if self._shared is None:
            self._own = Listeners(self._state_dir, self._listen)
        listeners = self._shared or self._own
        assert listeners is not None
        self.addresses = listeners.addresses
        # A server per listener: a crowd of connections on TCP does not keep operators from the unix socket.
        if listeners.tcp is not None:
            name = ListenerName(listeners.host, listeners.addresses[0][1])
            self._served.append(self._serve(listeners.tcp, self._auth(name)))
        self._served.append(self._serve(listeners.unix, self._auth(None)))

    def _auth(self, name: ListenerName | None) -> OperatorAuth:
        return OperatorAuth(self._tokens, self._sink, name, verifier=self._verifier)

    def _serve(self, sock: socket.socket, auth: OperatorAuth) -> _LazyServer:
        return _LazyServer(sock, self._review, auth, self._halts, self._rules)

    async def stop(self) -> None:
        """Stop listening, and give requests in flight a moment to finish."""
        for each in self._served:
            each.stop()
        await asyncio.gather(*(each.task for each in self._served), return_exceptions=True)
        if self._own is not None:
            self._own.close()


class _LazyServer:
    """Serves a socket from its first connection on: most workers never need uvicorn and starlette, which are large."""

    def __init__(
        self,
        sock: socket.socket,
        review: ProposalReview,
        auth: OperatorAuth,
        halts: HaltControl | None,
        rules: RuleReview | None,
    ) -> None:
        self._server: uvicorn.Server | None = None
        self.task = asyncio.create_task(self._run(sock, review, auth, halts, rules))
        self.task.add_done_callback(_ended)

    async def _run(
        self,
        sock: socket.socket,
        review: ProposalReview,
        auth: OperatorAuth,
        halts: HaltControl | None,
        rules: RuleReview | None,
    ) -> None:
        loop, connected = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(sock, connected.set)
        try:
            await connected.wait()
        finally:
            loop.remove_reader(sock)
        serving = await asyncio.to_thread(importlib.import_module, "proxy.admin_api.uvicorn_server")
        self._server = serving.make_server(review, auth, halts, rules)
        await self._server.serve([sock])

    def stop(self) -> None:
        if self._server is None:
            self.task.cancel()
        else:
            self._server.should_exit = True


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the admin API stopped", error=str(error), exc_info=error)
