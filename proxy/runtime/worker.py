"""One worker: builds the gate, the addons and mitmproxy's Master, and runs them.

What workers share comes from the supervisor, which created it before the fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from mitmproxy import options
from mitmproxy.addons import core, disable_h2c, proxyserver

from addons.connections import ConnectionGuard
from addons.egress import Egress
from addons.identity import Identity
from addons.lane.lanes import Lanes
from addons.lane.parts import LaneParts
from addons.limits import Limits
from addons.mcp import http_addons
from addons.mitm.addon_manager import InterlockMaster
from addons.mitm.client_certificates import ClientCertificates
from addons.mitm.fast.replacements import FAST
from addons.mitm.next_layer import HttpOnly
from addons.mitm.patches import Replacements, install
from addons.tools_changed import Announcer
from addons.websocket import WebsocketGate
from proxy.admin_api.halts import HaltControl
from proxy.admin_api.rule_review import RuleReview
from proxy.admin_api.server import AdminApiServer
from proxy.audit.restored import open_daemon_log
from proxy.core.rule_proposals import HOST as RULE_HOST
from proxy.core.rule_proposals import PORTS as RULE_PORTS
from proxy.egress.guard import EgressGuard
from proxy.errors import ConfigError
from proxy.identity.ca import Authority
from proxy.identity.token_file import AgentTokens
from proxy.metrics.counters import CONNECTIONS, STREAMS, UNDER_WAY, CountingSink, WorkerCounters
from proxy.runtime.outside_services import open_operator_verifier, open_verifier
from proxy.runtime.wiring import Components, open_worker_calls, resting_database
from proxy.runtime.worker_process import RETIRE_SIGNAL, Channel, WorkerStatus
from proxy.system import gc_tuning
from proxy.system.listen_ports import listen_as
from proxy.system.secret_files import read_or_make_key
from proxy.twophase.review import ProposalReview
from proxy.vault.live_vault import LiveVault
from proxy.vault.shared_values import SharedVault
from proxy.wire import sse_ping_carrier

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

    from proxy.admin_api.sockets import Listeners
    from proxy.config import Settings
    from proxy.core.vault import Vault
    from proxy.runtime.preload import Preloaded
    from proxy.system.listen_ports import Address
    from proxy.vault.shared_values import SharedValues

log = structlog.get_logger("interlock")


# How long a thread that scans a large body may keep the interpreter before the event loop gets it back. Python's
# default is 5 ms, and one call needs the loop about ten times.
TURN_SECONDS = 0.0005
TICK_SECONDS = 1.0
LOOK_SECONDS = 0.05  # between two looks at whether connections are still open
LAST_SECONDS = 1.0  # for what is under way when the time of a proxy that was taken over is up


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What the supervisor gives a worker."""

    number: int  # from 1; a replacement has the number of the worker it replaces
    logs: Sequence[int]  # the numbers of the local logs of all workers
    preloaded: Preloaded
    addresses: Sequence[Address]
    # Health and metrics. The egress guard denies these, and the admin API, to agents.
    private: Sequence[Address]
    listeners: Listeners
    channel: Channel
    counters: WorkerCounters
    accepting: Sequence[socket.socket] = ()  # what it accepts from; it opens sockets for the other addresses
    waits: bool = False  # whether it serves only when the supervisor says so
    shared_calls: Path | None = None
    console: str | None = None  # the URL of the console that this proxy serves
    shared_values: SharedValues | None = None


class Worker:
    """One worker. Create it inside a running event loop, then call `run`."""

    def __init__(self, settings: Settings, context: WorkerContext) -> None:
        self._settings = settings
        self._context = context
        self._stop = asyncio.Event()
        self._retire = asyncio.Event()
        self.announcer = Announcer()
        self.shared_calls = open_worker_calls(settings, context.shared_calls, lead=context.number == 1)
        self.components = Components(
            settings,
            lambda: open_daemon_log(settings, context.logs[context.number - 1]),
            self.announcer.tools_changed,
            self._report,
            preloaded=context.preloaded,
            wrap_sink=lambda sink: CountingSink(sink, context.counters),
            lead=context.number == 1,
            shared_calls=self.shared_calls,
            console=context.console,
            counters=context.counters,
            logs=context.logs,
            resting=resting_database(self.shared_calls),
            vault=_open_vault(settings, context),
        )
        self.policy, self.gate = self.components.policy, self.components.gate
        self.policy.quiet = True  # the supervisor speaks for all workers, once
        self.authority = Authority(settings.state_dir)
        self.admin_api = AdminApiServer(
            ProposalReview(self.components.store, self.components.sink, time.time),
            self.components.operators,
            self.components.sink,
            settings.state_dir,
            listeners=context.listeners,
            halts=HaltControl(self.components.halt_store, self.components.halt_file, self.components.sink),
            rules=RuleReview(self.components.rule_store, self.components.sink),
            verifier=open_operator_verifier(settings),
        )
        self.connections = ConnectionGuard(
            self.gate,
            self._context.counters,
            connection_limit=settings.connection_limit,
            first_request_seconds=2 * settings.header_timeout,  # tunnel and TLS first; a slow head has its own deadline
            body_seconds=settings.body_timeout,
            default_agent=settings.default_agent,
        )
        self.verifier = open_verifier(settings)
        self.components.halt_watcher.on_cut = self.connections.cut
        self.master = self._master()

    async def run(self) -> None:
        """Serve until stopped, then drain and write every event. Raises ConfigError if it cannot listen."""
        self._context.counters.begin()
        await self.components.check()
        if self._context.waits:
            await self._context.channel.wait_for_go()
        # First: its addresses must be known to the egress guard before an agent's request can aim at them.
        self.admin_api.start()
        sys.setswitchinterval(TURN_SECONDS)
        serving = asyncio.create_task(self.master.run())
        watching = asyncio.create_task(self._watch())
        try:
            await self._listening(serving)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop.set)
            loop.add_signal_handler(signal.SIGHUP, self.policy.request_reload)
            loop.add_signal_handler(RETIRE_SIGNAL, self._retire.set)
            gc_tuning.unmap_unused_files()
            self._report()
            told = [asyncio.create_task(event.wait()) for event in (self._stop, self._retire)]
            await asyncio.wait([serving, watching, *told], return_when=asyncio.FIRST_COMPLETED)
            if not self._stop.is_set() and not self._retire.is_set():
                raise RuntimeError("a task that should never end has ended") from _why(serving, watching)
            seconds = await self._let_go() if self._retire.is_set() else self._settings.drain_timeout
            await self._drain(seconds)
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await watching
            await self._shut_down(serving)

    async def _watch(self) -> None:
        following = (self.verifier.follow(),) if self.verifier is not None else ()
        await asyncio.gather(self.components.watch(), self._tick(), *following)

    async def _tick(self) -> None:
        """Update heartbeat and gauges every second. Runs until cancelled."""
        counters = self._context.counters
        await asyncio.sleep(TICK_SECONDS)
        gc_tuning.unmap_unused_files()  # again, for what threads began with, such as the first checkpoint
        while True:
            counters.beat()
            counters.set(CONNECTIONS, self.connections.open_count)
            counters.set(UNDER_WAY, len(self.gate.in_flight))
            counters.set(STREAMS, self.announcer.count)
            for ended in self.gate.in_flight.catch_up():
                self.gate.limits.ended(ended)
            self.components.audit.look_after()
            self._report()
            await asyncio.sleep(TICK_SECONDS)

    async def _listening(self, serving: asyncio.Task[None]) -> None:
        server = self.master.addons.get("proxyserver")
        while not server.listen_addrs():
            failed = next((s.last_exception for s in server.servers if s.last_exception), None)
            if failed is not None:
                reason = str(getattr(failed, "strerror", None) or failed).partition("\n")[0]
                raise ConfigError(
                    f"setting listen = {self._settings.listen!r}: {reason}; "
                    "stop what uses that address, or choose another, for example --listen 127.0.0.1:0"
                ) from failed
            if serving.done():
                serving.result()
                raise ConfigError("the proxy stopped before it was ready")
            await asyncio.sleep(0.005)

    def _report(self) -> None:
        version, problem = self.policy.current().version, self.components.policy_problem
        self._context.channel.report(
            WorkerStatus(
                version,
                problem,
                self.components.audit.problem,
                self.components.store_problem,
                self.components.fleet.problem if self.components.fleet is not None else None,
            )
        )

    async def _let_go(self) -> float:
        """Serve the connections that are open until their clients end them; another proxy accepts the new ones.

        Return how long what is under way then may still take.
        """
        self.connections.retiring = True
        self.components.lead = False
        await self.master.addons.get("proxyserver").servers.update([])
        await self.admin_api.stop()
        try:
            async with asyncio.timeout(self._settings.drain_timeout):
                while self.connections.open_count and not self._stop.is_set():  # noqa: ASYNC110  mitmproxy counts them
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            log.info("closing the connections that are still open", count=self.connections.open_count)
        return LAST_SECONDS if not self._stop.is_set() else self._settings.drain_timeout

    async def _drain(self, seconds: float) -> None:
        # Order: refuse new requests, stop accepting connections, then wait for the calls in flight.
        self.connections.stopping = True
        self.components.two_phase.held.stop()
        await self.master.addons.get("proxyserver").servers.update([])
        if not await self.connections.drained(seconds):
            log.warning("stopping with calls in flight", count=len(self.gate.in_flight))

    async def _shut_down(self, serving: asyncio.Task[None]) -> None:
        # mitmproxy first: its open connections still record events, which `components` must be there to write.
        self.master.shutdown()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(serving, timeout=5)
        await self.admin_api.stop()
        await self.components.close()
        if self.shared_calls is not None:
            self.shared_calls.close()

    def _open_sockets(self) -> list[socket.socket]:
        """Open what this worker listens on; the supervisor gets it, too, for a proxy that takes over."""
        sockets = listen_as(self._context.addresses, self._context.accepting)
        for sock in self._context.accepting:
            sock.close()
        self._context.channel.hand_in(sockets)
        return sockets

    def _master(self) -> InterlockMaster:
        settings = self._settings
        limits = _limits(settings)
        own = (*self._context.addresses, *self._context.private)
        seal_key = read_or_make_key(settings.state_dir / "keys" / "seal.key", sse_ping_carrier.KEY_BYTES)
        replacements = FAST if settings.fast else Replacements()
        install(replacements, self._open_sockets)
        with_lane = settings.fast and settings.fast_lane
        identity = Identity(
            AgentTokens(settings.state_dir),
            self.gate,
            default_agent=settings.default_agent,
            required=settings.agent_auth == "required",
            verifier=self.verifier,
        )
        certificates = replacements.certificates()
        asks = self.verifier is not None and self.verifier.uses_certificates
        answered = {RULE_HOST: RULE_PORTS if settings.rule_proposals else frozenset[int]()}
        addresses = lambda: [*own, *self.admin_api.addresses]  # noqa: E731
        egress = Egress(EgressGuard(self.policy.current, addresses, answered=answered), self.gate)
        carriers = http_addons(
            self.gate,
            limits,
            seal_key,
            self.connections,
            self.announcer.streams_of,
            self.shared_calls,
            teaches=with_lane,
        )
        parts = LaneParts(self.gate, carriers, identity, egress, self.connections, self.announcer, limits, seal_key)
        master = InterlockMaster(options.Options(), replacements.addon_manager)
        master.addons.add(
            core.Core(),
            proxyserver.Proxyserver(),
            HttpOnly(limits, replacements.http_layer, replacements.client_tls),
            certificates,
            *((ClientCertificates(certificates),) if asks else ()),
            *(make() for make in replacements.addons),
            disable_h2c.DisableH2C(),
            self.connections,
            identity,
            egress,
            *carriers,
            WebsocketGate(self.gate, limits.message_bytes, seal_key, self.connections),
            self.announcer,
            *((Lanes(parts),) if with_lane else ()),
        )
        host, port = settings.listen_address
        master.options.update(
            mode=[settings.mode],
            listen_host=host,
            listen_port=port,
            confdir=str(self.authority.folder),
            rawtcp=False,  # bytes that are not HTTP would pass unread
            # Dial after the decision, and make the leaf without asking the server: a denied host is never contacted.
            connection_strategy="lazy",
            upstream_cert=False,
            tcp_timeout=int(settings.idle_timeout),
            ssl_verify_upstream_trusted_ca=str(self.authority.upstream_roots(settings.upstream_ca)),
        )
        return master


def _why(*tasks: asyncio.Task[None]) -> BaseException | None:
    ended = (task.exception() for task in tasks if task.done() and not task.cancelled())
    return next(filter(None, ended), None)


def _open_vault(settings: Settings, context: WorkerContext) -> Vault:
    vault = LiveVault(settings.state_dir)
    return vault if context.shared_values is None else SharedVault(vault, context.shared_values, context.number)


def _limits(settings: Settings) -> Limits:
    return Limits(
        header_bytes=settings.header_limit,
        header_seconds=settings.header_timeout,
        body_bytes=settings.body_limit,
        body_seconds=settings.body_timeout,
        response_bytes=settings.response_limit,
        message_bytes=settings.event_limit,
        streams=settings.stream_limit,
        large_uploads=settings.large_uploads,
        keep_alive_seconds=settings.hold_keepalive,
    )
