"""One session over HTTP+SSE, the transport of revision 2024-11-05: answers come on the stream of a GET."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from proxy.errors import ServerError, WireError
from proxy.probe.mcp_client import CLIENT
from proxy.wire.jsonrpc import parse_json
from proxy.wire.sse import SseSplitter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

    from proxy.core.model import JsonObject
    from proxy.wire.sse import SseEvent

REVISION = "2024-11-05"
SECONDS = 20.0
MAX_EVENT = 16 << 20
MAX_EVENTS = 10_000


class SseSession:
    """A session on an open stream. Whatever the server sends that is no answer to the request at hand is skipped."""

    def __init__(self, client: httpx2.AsyncClient, url: str, stream: httpx2.Response) -> None:
        self._client = client
        self._url = url
        self._events = _events(stream)
        self._endpoint = ""
        self._number = 0

    async def open_session(self) -> JsonObject:
        """Wait for the endpoint, and shake hands; return the server's description. Raises ServerError."""
        try:
            async with asyncio.timeout(SECONDS):
                first = await anext(self._events, None)
        except TimeoutError:
            first = None
        if first is None or first.event != b"endpoint" or not first.data:
            raise ServerError(f"{self._url} opens no HTTP+SSE session: its stream does not begin with an endpoint")
        self._endpoint = _same_origin(self._url, first.data)
        hello = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": CLIENT}
        info = await self.request("initialize", hello)
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return info

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """Return a result. Raises ServerError."""
        self._number += 1
        await self._post({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        try:
            async with asyncio.timeout(SECONDS):
                return await self._answer(method)
        except TimeoutError:
            raise ServerError(f"{self._url} does not answer {method} within {SECONDS:g} seconds") from None

    async def _post(self, message: JsonObject) -> None:
        response = await self._client.post(self._endpoint, json=message)
        if response.status_code not in (200, 202, 204):
            raise ServerError(f"{self._endpoint} answers {message['method']} with HTTP {response.status_code}")

    async def _answer(self, method: str) -> JsonObject:
        seen = 0
        async for event in self._events:
            seen += 1
            answer = _parse(event, self._url)
            if answer.get("id") == self._number and isinstance(answer.get("result"), dict):
                return dict(answer["result"])
            if answer.get("id") == self._number:
                raise ServerError(f"{self._url} refuses {method}: {str(answer.get('error'))[:200]}")
            if seen >= MAX_EVENTS:
                break
        raise ServerError(f"{self._url} does not answer {method}")


def _same_origin(url: str, given: bytes) -> str:
    """Return where to post to. Raises ServerError for another origin: a server may not send us to other machines."""
    endpoint = urljoin(url, given.decode("utf-8", "replace").strip())
    if urlsplit(endpoint)[:2] != urlsplit(url)[:2]:
        raise ServerError(f"{url} names an endpoint of another origin: {endpoint[:200]}")
    return endpoint


def _parse(event: SseEvent, url: str) -> JsonObject:
    try:
        message = parse_json(event.data) if event.data else {}
    except WireError as error:
        raise ServerError(f"{url} answers with something that is no MCP message ({error})") from error
    return message if isinstance(message, dict) else {}


async def _events(stream: httpx2.Response) -> AsyncIterator[SseEvent]:
    splitter = SseSplitter(MAX_EVENT)
    try:
        async for chunk in stream.aiter_bytes():
            for event in splitter.feed(chunk):
                yield event
    except WireError as error:
        raise ServerError(f"{stream.url} sends no stream of events ({error})") from error
