"""Runs the console in a process of its own, on a socket that the supervisor opened. Imported in that process alone."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from typing import TYPE_CHECKING, Final

import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from proxy.admin_api.auth import ListenerName
from proxy.admin_api.halts import HaltControl
from proxy.admin_api.rule_review import RuleReview
from proxy.admin_api.uvicorn_server import bounded_server
from proxy.audit.live_tail import LiveTail
from proxy.audit.pipeline import AuditPipeline
from proxy.audit.restored import open_run_log
from proxy.console.app import ConsoleApp
from proxy.console.context import Console
from proxy.console.door import Door
from proxy.console.links import OneTimeLinks
from proxy.console.live_feed import LiveFeed
from proxy.console.oidc import OidcClient
from proxy.console.operators import Operators
from proxy.console.passkey_file import PasskeyFile
from proxy.console.passkeys import Passkeys
from proxy.console.pending import pending_proposals
from proxy.console.render import Assets, Renderer
from proxy.console.security import Site
from proxy.console.sessions import Sessions
from proxy.console.trail import Trail
from proxy.fleet.open_state import open_pins
from proxy.identity.oidc_settings import load_oidc
from proxy.identity.token_file import OperatorTokens
from proxy.store.halt_file import HaltFile
from proxy.store.halt_store import Halts
from proxy.store.open_store import open_store
from proxy.store.rule_proposal_store import RuleProposals
from proxy.twophase.review import ProposalReview

if TYPE_CHECKING:
    import socket

    import uvicorn

    from proxy.config import Settings
    from proxy.core.interfaces import EventSink
    from proxy.policy.reloader import LivePolicy

log = structlog.get_logger("interlock.console")

MAX_CONNECTIONS: Final = 512
CONNECTION_SECONDS: Final = 30.0
KEEP_ALIVE_SECONDS: Final = 30
STOP_SECONDS: Final = 1


class _Bounded(H11Protocol):
    # Without it, a client that begins a request and never ends it holds its place for good, and 512 of them all places.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._check = self.loop.call_later(CONNECTION_SECONDS, self._close_if_waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        self._check.cancel()
        super().connection_lost(exc)

    def _close_if_waiting(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:  # an answer is under way, which of a stream is for as long as its page is open
            self._check = self.loop.call_later(CONNECTION_SECONDS, self._close_if_waiting)


async def serve(
    settings: Settings, listener: socket.socket, policy: LivePolicy, *, owns_localhost: bool = False
) -> None:
    """Serve the console on `listener` until SIGTERM or SIGINT."""
    audit = AuditPipeline(settings, open_run_log(settings), adopts_all=False)
    try:
        await _serve(settings, listener, policy, audit.sink, owns_localhost=owns_localhost)
    finally:
        await asyncio.to_thread(audit.close)


async def _serve(
    settings: Settings, listener: socket.socket, policy: LivePolicy, sink: EventSink, *, owns_localhost: bool
) -> None:
    async with contextlib.AsyncExitStack() as closing:
        console, assets = build(
            settings, listener.getsockname()[1], policy, sink, closing, owns_localhost=owns_localhost
        )
        server = make_server(ConsoleApp(console, assets))
        loop = asyncio.get_running_loop()

        def stop() -> None:
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        watching = asyncio.create_task(policy.watch())
        try:
            await server.serve([listener])
        finally:
            watching.cancel()


def build(
    settings: Settings,
    port: int,
    policy: LivePolicy,
    sink: EventSink,
    closing: contextlib.AsyncExitStack,
    *,
    owns_localhost: bool = True,
) -> tuple[Console, Assets]:
    """Return what the pages share; `closing` closes it."""
    assert settings.console_address is not None
    trail = Trail(settings.postgres, settings.state_dir)
    store = open_store(settings.postgres, settings.state_dir)
    closing.push_async_callback(trail.close)
    closing.push_async_callback(store.close)
    review = ProposalReview(store, sink, time.time)
    operators = Operators(OperatorTokens(settings.state_dir))
    assets = Assets()
    feed = LiveFeed(
        lambda: LiveTail(settings.state_dir, trail.store, shared=trail.shared), lambda: pending_proposals(review)
    )
    closing.push_async_callback(feed.close)
    site = Site(ListenerName(settings.console_address[0], port), settings.console_url, owns_localhost)
    sessions = Sessions(operators)
    console = Console(
        site=site,
        operators=operators,
        sessions=sessions,
        links=OneTimeLinks(settings.state_dir),
        door=Door(site, sessions, sink),
        passkeys=Passkeys(PasskeyFile(settings.state_dir), operators),
        oidc=_oidc(settings),
        trail=trail,
        feed=feed,
        renderer=Renderer(assets),
        review=review,
        rules=RuleReview(RuleProposals(store.database), sink),
        halts=HaltControl(Halts(store.database), HaltFile(settings.state_dir), sink, origin="console"),
        policy=policy,
        policy_path=settings.policy,
        sink=sink,
        settings=settings,
        pins=open_pins(settings),
    )
    return console, assets


def _oidc(settings: Settings) -> OidcClient | None:
    found = load_oidc(settings.console_oidc, settings.console_url)
    return OidcClient(found, settings.console_url or "") if found is not None else None


def make_server(app: ConsoleApp) -> uvicorn.Server:
    return bounded_server(
        app, _Bounded, connections=MAX_CONNECTIONS, keep_alive=KEEP_ALIVE_SECONDS, stop_within=STOP_SECONDS
    )
