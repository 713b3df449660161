"""What a server over HTTP says of itself. What it does cannot be watched from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from proxy.errors import ServerError, WireError
from proxy.trace.findings import judge_manifest
from proxy.trace.peer import CLIENT, MAX_LISTED, MAX_PAGES, REVISION
from proxy.trace.report import Report, ToolReport, order
from proxy.trace.rulebook import rulebook
from proxy.trace.scope import Scope, declare_tool
from proxy.wire.jsonrpc import parse_json
from proxy.wire.sse import Splitter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from proxy.model import JsonObject
    from proxy.trace.baseline import Baseline

SECONDS = 20.0
MAX_BYTES = 16 << 20
ACCEPT = "application/json, text/event-stream"


async def probe_remote(name: str, url: str, known: Baseline | None) -> Report:
    """List what the server at `url` offers, and compare it with what is `known`. Raises ServerError."""
    try:
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            info, tools = await _list(client, url)
    except httpx2.HTTPError as error:
        raise ServerError(f"{url} cannot be spoken to: {error or type(error).__name__}") from error
    declared = [ToolReport(str(tool.get("name")), declare_tool(Scope(), tool), {}, ()) for tool in tools]
    said = info.get("serverInfo")
    return Report(
        server={"name": name, "url": url, "transport": "http", "info": said if isinstance(said, dict) else {}},
        tools=tuple(declared),
        startup={},
        findings=order(judge_manifest(tools, known.tools if known else None, rulebook())),
        trace={},
        manifest=tuple(tools),
        note="manifest only: what a server does elsewhere cannot be watched from here",
    )


async def _list(client: httpx2.AsyncClient, url: str) -> tuple[JsonObject, list[JsonObject]]:
    hello = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": CLIENT}
    headers, info = await _ask(client, url, 1, "initialize", hello, {})
    await client.post(url, headers=headers, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
    tools: list[JsonObject] = []
    cursor: JsonObject = {}
    for number in range(2, MAX_PAGES):
        _, page = await _ask(client, url, number, "tools/list", cursor, headers)
        listed = page.get("tools")
        tools += [tool for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
        if not isinstance(page.get("nextCursor"), str) or len(tools) >= MAX_LISTED:
            break
        cursor = {"cursor": page["nextCursor"]}
    return info, tools[:MAX_LISTED]


async def _ask(
    client: httpx2.AsyncClient, url: str, number: int, method: str, params: JsonObject, headers: dict[str, str]
) -> tuple[dict[str, str], JsonObject]:
    """Give the headers for what follows, and a request's result. Raises ServerError."""
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    async with client.stream("POST", url, headers={**headers, "Accept": ACCEPT}, json=message) as response:
        if response.status_code != 200:
            raise ServerError(f"{url} answers {method} with HTTP {response.status_code}")
        session = response.headers.get("mcp-session-id")
        async for answer in _messages(response):
            if answer.get("id") == number and isinstance(answer.get("result"), dict):
                known = {"mcp-session-id": session} if session else headers
                return {**known, "mcp-protocol-version": REVISION}, answer["result"]
            if answer.get("id") == number:
                raise ServerError(f"{url} refuses {method}: {str(answer.get('error'))[:200]}")
    raise ServerError(f"{url} does not answer {method}")


async def _messages(response: httpx2.Response) -> AsyncIterator[JsonObject]:
    """Give the messages of an answer, be it one or a stream of events. Raises ServerError."""
    streamed = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    splitter, body = Splitter(MAX_BYTES), b""
    try:
        async for chunk in response.aiter_bytes():
            if not streamed:
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ServerError(f"{response.url} answers with more than {MAX_BYTES} bytes")
                continue
            for event in splitter.feed(chunk):
                if event.data and isinstance(message := parse_json(event.data.encode()), dict):
                    yield message
        if not streamed and isinstance(message := parse_json(body), dict):
            yield message
    except WireError as error:
        raise ServerError(f"{response.url} answers with what is no message ({error})") from error
