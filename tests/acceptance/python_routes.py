"""Ways from the Python SDK's client to its servers: straight, and through Interlock in each of its modes."""

from __future__ import annotations

import contextlib
import functools
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.harness import (
    DENY_ALL_DANGER,
    Certificates,
    Interlock,
    ServerHandle,
    start_interlock,
    start_python_server,
)
from tests.support.timeouts import PATIENCE

type Mode = Literal["direct", "connect", "plain", "reverse"]


class Server(NamedTuple):
    """A Python test server and its flags."""

    module: str
    flags: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return "".join((self.module.replace("_", "-"), *(flag.removeprefix("-") for flag in self.flags)))

    @property
    def path(self) -> str:
        return "/sse" if self.module == "python_sse" else "/mcp"


@functools.cache
def trusting(ca_file: Path | None) -> ssl.SSLContext:
    """Return a context that trusts that CA, or the usual ones; reading those takes longer than a whole test."""
    return ssl.create_default_context(cafile=ca_file)


@dataclass(frozen=True)
class Route:
    """A running server and the way a client gets to it."""

    server: ServerHandle
    url: str
    path: str
    interlock: Interlock | None = None
    proxy: str | None = None
    ca_file: Path | None = None

    def http(self, **options: Any) -> httpx2.AsyncClient:
        """Return an HTTP client that takes this way."""
        timeout = options.pop("timeout", httpx2.Timeout(PATIENCE))
        return httpx2.AsyncClient(
            base_url=self.url,
            proxy=self.proxy,
            verify=trusting(self.ca_file),
            trust_env=False,
            timeout=timeout,
            **options,
        )

    @contextlib.asynccontextmanager
    async def client(self, era: str) -> AsyncIterator[Client]:
        """Return a connected SDK client: `legacy`, `auto`, or a modern revision."""
        endpoint = self.url + self.path
        if self.path == "/sse":
            transport = sse_client(endpoint, httpx_client_factory=self._factory)
            async with Client(transport, mode=era, read_timeout_seconds=PATIENCE) as client:
                yield client
            return
        async with self.http() as http:
            transport = streamable_http_client(endpoint, http_client=http)
            async with Client(transport, mode=era, read_timeout_seconds=PATIENCE) as client:
                yield client

    def _factory(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return self.http(headers=headers, timeout=timeout, auth=auth)

    def executed(self) -> list[str]:
        """Return the names of the tools that the server executed since this was last asked."""
        return [line["tool"] for line in self.server.new_executions()]


class Routes:
    """Starts each server and each Interlock once, when a route first needs it; `close` ends them all."""

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        self._directory = directory
        self._certificates = certificates
        self._stack = contextlib.ExitStack()
        self._servers: dict[tuple[Server, bool], ServerHandle] = {}
        self._interlocks: dict[tuple[str, str], Interlock] = {}

    def to(self, mode: Mode, server: Server, policy: str = DENY_ALL_DANGER) -> Route:
        """Return the way to `server` in `mode`."""
        running = self._server(server, tls=mode == "connect")
        running.new_executions()
        if mode == "direct":
            return Route(running, running.url, server.path)
        if mode == "reverse":
            interlock = self._interlock(f"reverse:{running.url}", policy)
            return Route(running, interlock.url, server.path, interlock)
        interlock = self._interlock("regular", policy)
        return Route(running, running.url, server.path, interlock, interlock.proxy_url, interlock.ca_file)

    def close(self) -> None:
        self._stack.close()

    def _server(self, server: Server, *, tls: bool) -> ServerHandle:
        if (server, tls) not in self._servers:
            directory = self._directory / f"server-{len(self._servers)}"
            certificates = self._certificates if tls else None
            starting = start_python_server(server.module, directory, certificates=certificates, flags=server.flags)
            self._servers[server, tls] = self._stack.enter_context(starting)
        return self._servers[server, tls]

    def _interlock(self, mode: str, policy: str) -> Interlock:
        if (mode, policy) not in self._interlocks:
            directory = self._directory / f"interlock-{len(self._interlocks)}"
            starting = start_interlock(directory, mode, policy, upstream_ca=self._certificates.ca_file)
            self._interlocks[mode, policy] = self._stack.enter_context(starting)
        return self._interlocks[mode, policy]
