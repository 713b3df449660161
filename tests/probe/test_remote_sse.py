"""A session over HTTP+SSE with the SDK's own server, and with servers that do not keep to the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from proxy.errors import ServerError
from proxy.probe.remote_sse import SseSession

HELLO = b'{"jsonrpc":"2.0","id":1,"result":{"serverInfo":{"name":"s"}}}'


class Stream(httpx2.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def opened(*chunks: bytes, status: int = 202) -> tuple[dict[str, object], list[str]]:
    posted: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, stream=Stream(*chunks))
        posted.append(str(request.url))
        return httpx2.Response(status)

    async def run() -> dict[str, object]:
        async with (
            httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client,
            client.stream("GET", "http://h/sse") as stream,
        ):
            return await SseSession(client, "http://h/sse", stream).open_session()

    return asyncio.run(run()), posted


def test_a_session_is_opened_at_the_endpoint_and_other_events_are_skipped() -> None:
    noise = b'data: {"jsonrpc":"2.0","method":"notifications/message"}\n\n: ping\n\n'
    info, posted = opened(b"event: endpoint\ndata: /messages?id=1\n\n", noise, b"data: " + HELLO + b"\n\n")
    assert info == {"serverInfo": {"name": "s"}}
    assert posted == ["http://h/messages?id=1"] * 2


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ((b"data: " + HELLO + b"\n\n",), "does not begin with an endpoint"),
        ((), "does not begin with an endpoint"),
        ((b"event: endpoint\ndata: http://evil.example/x\n\n",), "another origin"),
        ((b"event: endpoint\ndata: //evil.example/x\n\n",), "another origin"),
        ((b"event: endpoint\ndata: /m\n\n", b"data: {oops\n\n"), "no MCP message"),
        ((b"event: endpoint\ndata: /m\n\n", b'data: {"jsonrpc":"2.0","id":1,"error":{"code":1}}\n\n'), "refuses"),
        ((b"event: endpoint\ndata: /m\n\n",), "does not answer"),
    ],
)
def test_what_is_no_such_session_is_told(chunks: tuple[bytes, ...], why: str) -> None:
    with pytest.raises(ServerError, match=why):
        opened(*chunks)


def test_an_endpoint_that_refuses_is_told() -> None:
    with pytest.raises(ServerError, match="HTTP 404"):
        opened(b"event: endpoint\ndata: /m\n\n", status=404)
