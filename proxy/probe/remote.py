"""What a server over HTTP says of itself. What it does cannot be watched from here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx2

from proxy.errors import ServerError, WireError
from proxy.probe.declared_scope import DeclaredScope, declare_tool
from proxy.probe.findings import judge_manifest
from proxy.probe.mcp_client import CLIENT, MAX_LISTED, MAX_PAGES, REVISION, STATELESS, stateless_meta
from proxy.probe.report import ProbeReport, ToolReport, order
from proxy.probe.rulebook import rulebook
from proxy.wire.jsonrpc import parse_json
from proxy.wire.sse import SseSplitter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from proxy.core.model import JsonObject
    from proxy.probe.baseline import ServerBaseline

SECONDS = 20.0
MAX_BYTES = 16 << 20
ACCEPT = "application/json, text/event-stream"


async def probe_remote(name: str, url: str, known: ServerBaseline | None) -> ProbeReport:
    """List what the server at `url` offers, and compare it with what is `known`. Raises ServerError."""
    try:
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            info, tools = await _list(_Remote(client, url))
    except httpx2.HTTPError as error:
        raise ServerError(f"{url} cannot be spoken to: {error or type(error).__name__}") from error
    declared = [ToolReport(str(tool.get("name")), declare_tool(DeclaredScope(), tool), {}, ()) for tool in tools]
    said = info.get("serverInfo")
    return ProbeReport(
        server={"name": name, "url": url, "transport": "http", "info": said if isinstance(said, dict) else {}},
        tools=tuple(declared),
        startup={},
        findings=order(judge_manifest(tools, known.tools if known else None, rulebook())),
        trace={},
        manifest=tuple(tools),
        note="manifest only: what a server does elsewhere cannot be watched from here",
    )


async def _list(remote: _Remote) -> tuple[JsonObject, list[JsonObject]]:
    info = await remote.greet()
    tools: list[JsonObject] = []
    cursor: JsonObject = {}
    for _ in range(MAX_PAGES):
        page = await remote.ask("tools/list", cursor)
        listed = page.get("tools")
        tools += [tool for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
        if not isinstance(page.get("nextCursor"), str) or len(tools) >= MAX_LISTED:
            break
        cursor = {"cursor": page["nextCursor"]}
    return info, tools[:MAX_LISTED]


@dataclass(slots=True)
class _Remote:
    """One conversation over HTTP, with a handshake or, where the server knows none, without."""

    client: httpx2.AsyncClient
    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    meta: JsonObject = field(default_factory=dict)
    number: int = 0

    async def greet(self) -> JsonObject:
        """Open the conversation in whichever way the server knows; what it says of itself. Raises ServerError."""
        hello = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": CLIENT}
        try:
            info = await self.ask("initialize", hello)
        except ServerError as handshake:
            self.headers, self.meta = {"mcp-protocol-version": STATELESS}, stateless_meta({})
            try:
                return await self.ask("server/discover", {})
            except ServerError as error:
                raise ServerError(f"{handshake}; without a handshake, {error}") from error
        # What was agreed on, or else what we asked for.
        agreed = info.get("protocolVersion")
        self.headers["mcp-protocol-version"] = agreed if isinstance(agreed, str) and agreed.isascii() else REVISION
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self.client.post(self.url, headers={**self.headers, "Accept": ACCEPT}, json=told)
        return info

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Return a request's result. Raises ServerError."""
        self.number += 1
        said = {**params, "_meta": self.meta} if self.meta else params
        headers = {**self.headers, **({"mcp-method": method} if self.meta else {}), "Accept": ACCEPT}
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": said}
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
    """Return the messages of an answer, be it one or a stream of events. Raises ServerError."""
    streamed = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    splitter, body = SseSplitter(MAX_BYTES), b""
    try:
        async for chunk in response.aiter_bytes():
            if not streamed:
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ServerError(f"{response.url} answers with more than {MAX_BYTES} bytes")
                continue
            for event in splitter.feed(chunk):
                if event.data and isinstance(message := parse_json(event.data), dict):
                    yield message
        if not streamed and isinstance(message := parse_json(body), dict):
            yield message
    except WireError as error:
        raise ServerError(f"{response.url} answers with what is no message ({error})") from error
