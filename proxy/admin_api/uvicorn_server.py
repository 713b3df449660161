"""uvicorn for the admin API, and for the console. Large, so imported at the first connection."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from proxy.admin_api.api import make_app

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractContextManager

    from starlette.types import ASGIApp

    from proxy.admin_api.auth import OperatorAuth
    from proxy.admin_api.halts import HaltControl
    from proxy.admin_api.rule_review import RuleReview
    from proxy.twophase.review import ProposalReview

MAX_CONNECTIONS: Final = 32
CONNECTION_SECONDS: Final = 30.0
KEEP_ALIVE_SECONDS: Final = 5
STOP_SECONDS: Final = 2


class _Server(uvicorn.Server):
    # uvicorn would take SIGTERM for itself, so that a worker would not drain, and raise it again once it has stopped.
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


class _Brief(H11Protocol):
    # An idle connection counts against MAX_CONNECTIONS: without an end, 32 of them would shut operators out for good.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._end = self.loop.call_later(CONNECTION_SECONDS, self.shutdown)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end.cancel()
        super().connection_lost(exc)


def make_server(
    review: ProposalReview, auth: OperatorAuth, halts: HaltControl | None = None, rules: RuleReview | None = None
) -> uvicorn.Server:
    return bounded_server(
        make_app(review, auth, halts, rules),
        _Brief,
        connections=MAX_CONNECTIONS,
        keep_alive=KEEP_ALIVE_SECONDS,
        stop_within=STOP_SECONDS,
    )


def bounded_server(
    app: ASGIApp, protocol: type[H11Protocol], *, connections: int, keep_alive: int, stop_within: int
) -> uvicorn.Server:
    """Return a server of HTTP/1.1 alone that leaves signals and logs to its process."""
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections,
        timeout_keep_alive=keep_alive,
        timeout_graceful_shutdown=stop_within,
    )
    return _Server(config)
