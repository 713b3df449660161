"""The composition root: builds the gate, the addons and mitmproxy's Master, and runs them until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import structlog
from mitmproxy import options
from mitmproxy.addons import core, disable_h2c, proxyserver, tlsconfig

from addons.announce import Announcer
from addons.egress import Egress
from addons.embedding import embed
from addons.hook_table import Embedded
from addons.identity import Identity
from addons.lifecycle import Lifecycle
from addons.limits import Limits
from addons.mcp_gate import McpGate
from addons.next_layer import HttpOnly
from proxy import runfile
from proxy.agents import AgentBook
from proxy.ca import Authority
from proxy.console.server import Console
from proxy.desk import Desk
from proxy.egress import EgressGuard
from proxy.errors import ConfigError
from proxy.files import FolderLock, read_or_make_key
from proxy.parts import Parts
from proxy.store.log_files import DaemonLog
from proxy.wire import legacy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.config import Settings

log = structlog.get_logger("interlock")


# How long a thread that works on a large body may keep the event loop waiting for its turn; Python's own is 5 ms,
# and a call takes some ten turns.
TURN_SECONDS = 0.0005


class Daemon:
    """One proxy process. Make it inside a running event loop, then `run` it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._running: runfile.Running | None = None
        self._lock = FolderLock(settings.state_dir)
        runfile.clear(settings.state_dir)
        self.announcer = Announcer()
        self.parts = Parts(settings, self._open_log, self.announcer.tools_changed, self._tell)
        self.policy, self.gate = self.parts.policy, self.parts.gate
        self.authority = Authority(settings.state_dir)
        self.authority.ensure()
        self.console = self._console()
        self.lifecycle = Lifecycle(
            self.gate,
            connection_limit=settings.connection_limit,
            first_request_seconds=2 * settings.header_timeout,  # tunnel and TLS first; a slow head has its own deadline
            body_seconds=settings.body_timeout,
            default_agent=settings.default_agent,
        )
        self.master = self._master()

    def _open_log(self) -> DaemonLog:
        return DaemonLog(self._settings.state_dir, max_bytes=self._settings.audit_log_limit)

    def stop(self) -> None:
        """Begin a graceful stop."""
        self._stop.set()

    async def run(self, on_ready: Callable[[runfile.Running], None] = lambda _: None) -> None:
        """Serve until stopped; let calls under way finish; leave nothing unwritten.

        Raises ConfigError where the address cannot be listened on.
        """
        await self.parts.check()
        self.console.start()  # before the first request can come, so that none is let through to it
        sys.setswitchinterval(TURN_SECONDS)
        serving = asyncio.create_task(self.master.run())
        watching = asyncio.create_task(self.parts.watch())
        try:
            running = self._running = await self._listening(serving)
            self._handle_signals()
            self._tell()
            on_ready(running)
            stopped = asyncio.create_task(self._stop.wait())
            await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
            await self._drain()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            await self._shut_down(serving)

    async def _listening(self, serving: asyncio.Task[None]) -> runfile.Running:
        server = self.master.addons.get("proxyserver")
        while not server.listen_addrs():
            failed = next((s.last_exception for s in server.servers if s.last_exception), None)
            if failed is not None:
                await self._refuse_to_listen(failed)
            if serving.done():
                serving.result()
                raise ConfigError("the proxy ended before it was ready")
            await asyncio.sleep(0.005)
        return runfile.Running(
            pid=os.getpid(),
            listen=_spell(server.listen_addrs()[0]),
            mode=self._settings.mode,
            ca=str(self.authority.certificate_file),
            policy=str(self._settings.policy),
            policy_version=self.policy.current().version,
            started=time.time(),
            operator_socket=str(self.console.path),
            operator_listen=next(map(_spell, self.console.addresses), None),
        )

    def _console(self) -> Console:
        settings, parts = self._settings, self.parts
        desk = Desk(parts.store, parts.sink, time.time)
        return Console(desk, parts.operators, parts.sink, settings.state_dir, settings.operator_address)

    def _tell(self) -> None:
        """Leave a note of what is in force, for `interlock status`."""
        if self._running is None:
            return
        running = dataclasses.replace(
            self._running, policy_version=self.policy.current().version, policy_problem=self.policy.problem
        )
        try:
            runfile.write(self._settings.state_dir, running)
        except OSError as error:
            log.exception("the run file cannot be written", state_dir=str(self._settings.state_dir), error=str(error))

    async def _refuse_to_listen(self, error: Exception) -> None:
        reason = str(error.strerror if isinstance(error, OSError) and error.strerror else error).partition("\n")[0]
        raise ConfigError(
            f"setting listen = {self._settings.listen!r}: {reason}; "
            "stop what uses that address, or choose another, for example --listen 127.0.0.1:0"
        ) from error

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.policy.ask_to_reload)

    async def _drain(self) -> None:
        self.lifecycle.stopping = True
        await self.master.addons.get("proxyserver").servers.update([])
        if not await self.lifecycle.drained(self._settings.drain_timeout):
            log.warning("stopping with calls under way", count=self.gate.under_way)

    async def _shut_down(self, serving: asyncio.Task[None]) -> None:
        self._running = None
        runfile.remove(self._settings.state_dir)
        self.master.shutdown()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(serving, timeout=5)
        await self.console.stop()
        await self.parts.close()
        self._lock.release()

    def _own_addresses(self) -> list[tuple[str, int]]:
        listening = self.master.addons.get("proxyserver").listen_addrs()
        return [*((address[0], address[1]) for address in listening), *self.console.addresses]

    def _master(self) -> Embedded:
        settings = self._settings
        limits = _limits(settings)
        seal_key = read_or_make_key(settings.state_dir / "keys" / "seal.key", legacy.KEY_BYTES)
        embed()
        master = Embedded(options.Options())
        master.addons.add(
            core.Core(),
            proxyserver.Proxyserver(),
            HttpOnly(limits),
            tlsconfig.TlsConfig(),
            disable_h2c.DisableH2C(),
            self.lifecycle,
            Identity(
                AgentBook(settings.state_dir),
                self.gate,
                default_agent=settings.default_agent,
                required=settings.agent_auth == "required",
            ),
            Egress(EgressGuard(self.policy.current, self._own_addresses), self.gate),
            McpGate(self.gate, limits, seal_key, lambda: self.lifecycle.stopping),
            self.announcer,
        )
        host, port = settings.listen_address
        master.options.update(
            mode=[settings.mode],
            listen_host=host,
            listen_port=port,
            confdir=str(self.authority.folder),
            rawtcp=False,
            connection_strategy="lazy",
            upstream_cert=False,
            tcp_timeout=int(settings.idle_timeout),
            ssl_verify_upstream_trusted_ca=str(self.authority.upstream_roots(settings.upstream_ca)),
        )
        return master


def _spell(address: Sequence[Any]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _limits(settings: Settings) -> Limits:
    return Limits(
        header_bytes=settings.header_limit,
        header_seconds=settings.header_timeout,
        body_bytes=settings.body_limit,
        body_seconds=settings.body_timeout,
        response_bytes=settings.response_limit,
        message_bytes=settings.event_limit,
        large_uploads=settings.large_uploads,
    )
