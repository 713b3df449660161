"""Ways from the Python SDK's client to its servers: straight, and through Interlock in each of its modes."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.harness import Certificates, Interlock, ServerHandle, start_interlock, start_python_server

LIMIT = 10.0
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
        """Give an HTTP client that takes this way."""
        verify = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True
        timeout = options.pop("timeout", httpx2.Timeout(LIMIT))
        return httpx2.AsyncClient(
            base_url=self.url, proxy=self.proxy, verify=verify, trust_env=False, timeout=timeout, **options
        )

    @contextlib.asynccontextmanager
    async def client(self, era: str) -> AsyncIterator[Client]:
        """Give a connected SDK client: `legacy`, `auto`, or a modern revision."""
        endpoint = self.url + self.path
        if self.path == "/sse":
            transport = sse_client(endpoint, httpx_client_factory=self._factory)
            async with Client(transport, mode=era, read_timeout_seconds=LIMIT) as client:
                yield client
            return
        async with self.http() as http:
            transport = streamable_http_client(endpoint, http_client=http)
            async with Client(transport, mode=era, read_timeout_seconds=LIMIT) as client:
                yield client

    def _factory(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return self.http(headers=headers, timeout=timeout, auth=auth)

    def executed(self) -> list[str]:
        """Give the names of the tools that the server executed since this was last asked."""
        return [line["tool"] for line in self.server.new_executions()]


@contextlib.contextmanager
def running_route(
    mode: Mode, server: Server, directory: Path, certificates: Certificates, *, policy: str
) -> Iterator[Route]:
    """Start the server, and Interlock before it, and give the way."""
    tls = certificates if mode == "connect" else None
    with start_python_server(server.module, directory, certificates=tls, flags=server.flags) as running:
        if mode == "direct":
            yield Route(running, running.url, server.path)
            return
        up = f"reverse:{running.url}" if mode == "reverse" else "regular"
        with start_interlock(directory, up, policy, upstream_ca=certificates.ca_file) as interlock:
            if mode == "reverse":
                yield Route(running, interlock.url, server.path, interlock)
            else:
                proxy = interlock.proxy_url
                yield Route(running, running.url, server.path, interlock, proxy, interlock.ca_file)
