"""Probes a server over HTTP: reads what it lists. What it does on its own machine cannot be observed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import httpx2

from proxy.errors import ServerError, WireError
from proxy.probe.comparison import judge_manifest
from proxy.probe.deceit import judge_described_credentials
from proxy.probe.declared_scope import DeclaredScope, declare_tool
from proxy.probe.findings import group, order
from proxy.probe.mcp_client import CLIENT, REVISION, STATELESS, list_pages, stateless_meta
from proxy.probe.remote_sse import SseSession
from proxy.probe.report import ProbeReport, ToolReport
from proxy.probe.rulebook import rulebook
from proxy.probe.texts import judge_definitions
from proxy.wire.jsonrpc import parse_json
from proxy.wire.sse import SseSplitter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from proxy.core.model import JsonObject
    from proxy.probe.baseline import ServerBaseline

SECONDS = 20.0
MAX_BYTES = 16 << 20
ACCEPT = "application/json, text/event-stream"


async def probe_remote(
    name: str, url: str, known: ServerBaseline | None, transport: Literal["http", "sse"] = "http"
) -> ProbeReport:
    """List what the server at `url` offers, and compare it with what is `known`. Raises ServerError."""
    try:
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            info, tools = await (_list_over_sse(client, url) if transport == "sse" else _list(client, url))
    except httpx2.HTTPError as error:
        raise ServerError(f"{url} cannot be reached: {error or type(error).__name__}") from error
    declared = [ToolReport(str(tool.get("name")), declare_tool(DeclaredScope(), tool), {}, ()) for tool in tools]
    server_info = info.get("serverInfo")
    described = server_info if isinstance(server_info, dict) else {}
    return ProbeReport(
        server={"name": name, "url": url, "transport": transport, "info": described},
        tools=tuple(declared),
        startup={},
        findings=order(
            group(
                [
                    *judge_manifest(tools, known.tools if known else None, rulebook()),
                    *judge_definitions(tools, rulebook()),
                    *judge_described_credentials(tools, rulebook()),
                ]
            )
        ),
        trace={},
        manifest=tuple(tools),
        note="manifest only: what a remote server does cannot be observed from here",
    )


async def _list(client: httpx2.AsyncClient, url: str) -> tuple[JsonObject, list[JsonObject]]:
    remote = _Remote(client, url)
    info = await remote.open_session()
    return info, await list_pages(lambda cursor: remote.request("tools/list", cursor), "tools")


async def _list_over_sse(client: httpx2.AsyncClient, url: str) -> tuple[JsonObject, list[JsonObject]]:
    async with client.stream("GET", url, headers={"Accept": "text/event-stream"}) as stream:
        if stream.status_code != 200:
            raise ServerError(f"{url} answers a stream's GET with HTTP {stream.status_code}")
        session = SseSession(client, url, stream)
        info = await session.open_session()
        return info, await list_pages(lambda cursor: session.request("tools/list", cursor), "tools")


@dataclass(slots=True)
class _Remote:
    """One session over HTTP, with a handshake or, where the server refuses it, without."""

    client: httpx2.AsyncClient
    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    meta: JsonObject = field(default_factory=dict)
    number: int = 0

    async def open_session(self) -> JsonObject:
        """Open the session; return the server's description of itself. Raises ServerError."""
        hello = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": CLIENT}
        try:
            info = await self.request("initialize", hello)
        except ServerError as handshake:
            self.headers, self.meta = {"mcp-protocol-version": STATELESS}, stateless_meta({})
            try:
                return await self.request("server/discover", {})
            except ServerError as error:
                raise ServerError(f"{handshake}; without a handshake, {error}") from error
        # Servers refuse later requests without the header, or with another revision than was agreed on.
        agreed = info.get("protocolVersion")
        self.headers["mcp-protocol-version"] = agreed if isinstance(agreed, str) and agreed.isascii() else REVISION
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self.client.post(self.url, headers={**self.headers, "Accept": ACCEPT}, json=initialized)
        return info

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        self.number += 1
        full = {**params, "_meta": self.meta} if self.meta else params
        headers = {**self.headers, **({"mcp-method": method} if self.meta else {}), "Accept": ACCEPT}
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": full}
        async with self.client.stream("POST", self.url, headers=headers, json=message) as response:
            if response.status_code != 200:
                raise ServerError(f"{self.url} answers {method} with HTTP {response.status_code}")
            session = response.headers.get("mcp-session-id")
            if session and not self.meta:
                self.headers["mcp-session-id"] = session
            async for answer in _messages(response):
                if answer.get("id") == self.number and isinstance(answer.get("result"), dict):
                    return dict(answer["result"])
                if answer.get("id") == self.number:
                    raise ServerError(f"{self.url} refuses {method}: {str(answer.get('error'))[:200]}")
        raise ServerError(f"{self.url} does not answer {method}")


async def _messages(response: httpx2.Response) -> AsyncIterator[JsonObject]:
    """Yield the messages of a response, be it JSON or a stream of events. Raises ServerError."""
    streamed = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    splitter, body = SseSplitter(MAX_BYTES), b""
    try:
        async for chunk in response.aiter_bytes():
            if not streamed:
                body += chunk  # bounded: the server may send without end
                if len(body) > MAX_BYTES:
                    raise ServerError(f"{response.url} answers with more than {MAX_BYTES} bytes")
                continue
            for event in splitter.feed(chunk):
                if event.data and isinstance(message := parse_json(event.data), dict):
                    yield message
        if not streamed and isinstance(message := parse_json(body), dict):
            yield message
    except WireError as error:
        raise ServerError(f"{response.url} answers with something that is no MCP message ({error})") from error
