"""A session with an MCP server through the proxy, by the official SDK. Imported only where a command needs a client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
import warnings
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import httpx2

from proxy.errors import InterlockError

with warnings.catch_warnings():
    # The SDK's own use of what its dependencies deprecate is nothing that a user can mend.
    warnings.simplefilter("ignore")
    from mcp import Client, StdioServerParameters
    from mcp.client.sse import sse_client
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from proxy.agent.env import ProxyEndpoint

type Transports = Literal["http", "sse"]


@dataclass(frozen=True)
class RemoteServer:
    """A server with a URL, called through a proxy."""

    url: str
    proxy: ProxyEndpoint
    transport: Transports
    timeout: float

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[TransportStreams]:
        if self.transport == "sse":
            async with sse_client(self.url, httpx_client_factory=self._client) as streams:
                yield streams
        else:
            async with self._client() as client, streamable_http_client(self.url, http_client=client) as streams:
                yield streams

    def _client(self, headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
        waiting = httpx2.Timeout(self.timeout, read=max(self.timeout, 300.0))
        # Nothing of the environment: NO_PROXY would lead around the proxy that is asked for here.
        return httpx2.AsyncClient(
            proxy=self.proxy.url,
            verify=ssl.create_default_context(cafile=self.proxy.bundle),
            headers=headers,
            timeout=timeout or waiting,
            auth=auth,
            trust_env=False,
        )


@dataclass(frozen=True)
class LocalServer:
    """A server that `interlock run` starts."""

    words: Sequence[str]  # what follows `interlock`

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[TransportStreams]:
        started = StdioServerParameters(
            command=sys.executable, args=["-m", "proxy.cli", *self.words], env=dict(os.environ)
        )
        async with stdio_client(started) as streams:
            yield streams


async def list_tools(server: RemoteServer | LocalServer, seconds: float) -> list[dict[str, Any]]:
    """Return the server's tools as they are on the wire."""
    async with asyncio.timeout(seconds), Client(server.open(), read_timeout_seconds=seconds) as client:
        return [tool async for tool in _tools(client)]


async def call_tool(server: RemoteServer | LocalServer, tool: str, arguments: Any, seconds: float) -> dict[str, Any]:
    """Call a tool; `arguments` makes them of its input schema. Return the result as it is on the wire."""
    async with asyncio.timeout(seconds), Client(server.open(), read_timeout_seconds=seconds) as client:
        schema: dict[str, Any] = {}
        async for listed in _tools(client):
            if listed["name"] == tool:
                schema = listed.get("inputSchema") or {}
        result = await client.call_tool(tool, arguments(schema))
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def call_unlisted(
    server: RemoteServer | LocalServer, tool: str, arguments: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Call a tool without a look at the server's list. Return the result as it is on the wire."""
    async with asyncio.timeout(seconds), Client(server.open(), read_timeout_seconds=seconds) as client:
        result = await client.call_tool(tool, arguments)
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def _tools(client: Client) -> AsyncIterator[dict[str, Any]]:
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            yield tool.model_dump(mode="json", by_alias=True, exclude_none=True)
        cursor = page.next_cursor
        if cursor is None:
            return


def run_session[T](work: Coroutine[Any, Any, T], target: str) -> T:
    """Run a session to its end. Raises InterlockError that names the server where it fails."""
    try:
        return asyncio.run(work)
    except BaseExceptionGroup as group:
        error: BaseException = group
        # The SDK runs in task groups, which wrap what is raised in them.
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
    except Exception as alone:  # noqa: BLE001  whatever the server or the SDK gives becomes one message
        error = alone
    if isinstance(error, InterlockError | KeyboardInterrupt):
        raise error from None
    if isinstance(error, TimeoutError):
        raise InterlockError(f"{target} did not answer in time; give it longer with --timeout") from None
    raise InterlockError(f"{target} cannot be called: {str(error).strip() or type(error).__name__}") from None
