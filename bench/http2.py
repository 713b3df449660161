"""HTTP/2 for the load client, by hand: fixed request headers, and of the answers only what tells their end.

A frame is nine bytes of head (length, type, flags, stream) and its payload. The headers of a request never change, so
they are spelled once, as literals that no table remembers; those of an answer are looked at for their status alone.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from bench.payloads import MARK, call

if TYPE_CHECKING:
    from bench.load import Spec, Tally

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
STREAMS = 8
"""Calls at once on a connection."""
WINDOW = (1 << 31) - 1 - 65_535
STATUS_200 = 0x88
TOP = 1 << 30
"""Where a connection runs out of streams."""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Spell a frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def header(name: str, value: str) -> bytes:
    """Spell a header as a literal that is not indexed; both are shorter than 127 bytes."""
    return b"\x00" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()


class Multiplexer(asyncio.Protocol):
    """One connection with several calls under way."""

    def __init__(self, spec: Spec, tally: Tally) -> None:
        self._tally = tally
        self._buffer = bytearray()
        self._body = call()
        self._head = b"".join(
            header(name, value)
            for name, value in (
                (":method", "POST"),
                (":scheme", "https"),
                (":path", spec.path),
                (":authority", spec.authority),
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
                ("mcp-protocol-version", "2025-06-18"),
                ("content-length", str(len(self._body))),
            )
        )
        self._next_stream = 1
        self._began: dict[int, float] = {}
        self._problems: dict[int, str | None] = {}
        self._taken = 0
        self.first: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def greet(self) -> None:
        """Open the conversation with one call."""
        settings = b"\x00\x04" + ((1 << 31) - 1).to_bytes(4, "big")  # the window of each stream
        self.transport.write(
            PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, WINDOW.to_bytes(4, "big"))
        )
        self._send()

    def begin(self) -> None:
        """Make calls until there is no more time."""
        for _ in range(STREAMS):
            if self._tally.more():
                self._send()
        self._finish()

    def _send(self) -> None:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._began[stream] = time.perf_counter()
        self._problems[stream] = "no result"
        self.transport.write(
            frame(HEADERS, END_HEADERS, stream, self._head) + frame(DATA, END_STREAM, stream, self._body)
        )

    def data_received(self, data: bytes) -> None:
        """Take each frame that is whole."""
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= 9:
            length = int.from_bytes(self._buffer[start : start + 3], "big")
            end = start + 9 + length
            if len(self._buffer) < end:
                break
            kind, flags = self._buffer[start + 3], self._buffer[start + 4]
            stream = int.from_bytes(self._buffer[start + 5 : start + 9], "big")
            self._take(kind, flags, stream, bytes(self._buffer[start + 9 : end]))
            start = end
        del self._buffer[:start]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS and payload[:1] != bytes((STATUS_200,)) and stream in self._began:
            self._problems[stream] = f"status is not 200: {payload[:8].hex()}"
        elif kind == DATA:
            self._keep_window(len(payload))
            if MARK in payload and self._problems.get(stream) == "no result":
                self._problems[stream] = None
        elif kind == SETTINGS and not flags & ACK:
            self.transport.write(frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.transport.write(frame(PING, ACK, 0, payload))
        elif kind == RESET:
            self._problems[stream] = "stream reset"
        elif kind == GOAWAY:
            self._lost("the server went away")
        if stream in self._began and (kind == RESET or (kind in (DATA, HEADERS) and flags & END_STREAM)):
            self._answered(stream)

    def _keep_window(self, length: int) -> None:
        self._taken += length
        if self._taken > 1 << 24:
            self.transport.write(frame(WINDOW_UPDATE, 0, 0, self._taken.to_bytes(4, "big")))
            self._taken = 0

    def _answered(self, stream: int) -> None:
        began, problem = self._began.pop(stream), self._problems.pop(stream)
        if not self.first.done():
            self.first.set_result(problem)
            return
        self._tally.done(began, problem)
        if self._next_stream < TOP and self._tally.more():
            self._send()
        self._finish()

    def _finish(self) -> None:
        if not self._began and not self.ended.done():
            self.ended.set_result(None)

    def _lost(self, problem: str) -> None:
        if not self.first.done():
            self.first.set_result(problem)
        for stream in list(self._began):
            self._tally.done(self._began.pop(stream), problem)
        self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(f"connection lost: {exc or 'closed'}")


async def multiplex(spec: Spec, tally: Tally, wait_for_go: Callable[[], Awaitable[None]]) -> None:
    """Make calls over HTTP/2, STREAMS at once on each connection."""
    from bench.load import LIMIT, connect  # noqa: PLC0415

    context = spec.context
    assert context
    protocols = []
    for _ in range(max(1, spec.connections // STREAMS)):
        opened = await connect(spec, context)
        opened.on_answer = lambda _: None
        protocol = Multiplexer(spec, tally)
        opened.transport.set_protocol(protocol)
        protocol.connection_made(opened.transport)
        _check(opened.transport)
        protocol.greet()
        protocols.append(protocol)
        async with asyncio.timeout(LIMIT):
            if problem := await protocol.first:
                raise ConnectionError(problem)
    await wait_for_go()
    tally.start()
    for protocol in protocols:
        protocol.begin()
    await asyncio.wait([protocol.ended for protocol in protocols], timeout=spec.seconds + LIMIT)
    for protocol in protocols:
        protocol.transport.close()


def _check(transport: asyncio.Transport) -> None:
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if tls is None or tls.selected_alpn_protocol() != "h2":
        raise ConnectionError("the other side does not speak HTTP/2")
