"""One scripted exchange on a connection whose lane is open: what the client writes, and what the server answers.

The same exchange goes through a proxy with the lane and through one without it. What the server got, what the client
got and what was recorded must be the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.harness import Certificates

WARM_UP = 3
"""Calls after which a lane is open: two teach it, the third goes through it."""
QUIET = 0.4
"""Nothing more is expected where nothing came for so many seconds."""
SILENT = 1.5
_CASE = re.compile(rb"case-[0-9]+")
_ID = re.compile(rb'"id": ?([0-9]+|"[^"]*")')
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MASK = re.compile(rb"(\[secret:[a-z-]+):[0-9a-f]+\]")  # each proxy has a key of its own for these
CLOSE = b""
"""A piece that ends a side."""


@dataclass(frozen=True)
class Exchange:
    """One case: the pieces that are written one after the other; an empty one closes."""

    name: str
    asks: tuple[bytes, ...]
    answers: tuple[bytes, ...] = ()
    plain: bool = False
    """Whether the request goes to the proxy without TLS, in absolute form."""
    warm: bytes = b""
    """Fields that the calls which open the lane have, too."""
    simple: bool = False
    """Whether one whole answer is all that comes; the connection serves again then, where it may."""


@dataclass
class Seen:
    """What came of one exchange."""

    answer: bytes = b""
    closed: bool = False
    reset: bool = False
    """Whether the connection was reset under the client."""
    gone: bool = False
    """Whether the client went before its answer."""
    forwarded: list[bytes] = field(default_factory=list)
    events: list[tuple[object, ...]] = field(default_factory=list)


def neutral(data: bytes) -> bytes:
    """Return bytes without what differs from call to call."""
    return _MASK.sub(rb"\1]", _UUID.sub(b"(id)", data))


def json_answer(body: bytes, *, head: bytes = b"") -> bytes:
    """Return an ordinary answer."""
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n" % (head, len(body)) + body
    )


class ScriptedServer:
    """A server that answers each case as it is written, and notes what it got."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self.scripts: dict[bytes, tuple[bytes, ...]] = {}
        self.got: dict[bytes, list[bytes]] = defaultdict(list)
        self._servers: list[asyncio.Server] = []
        self.ports: tuple[int, int] = (0, 0)

    async def start(self) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificates.cert_file, self._certificates.key_file)
        context.set_alpn_protocols(["http/1.1"])
        with_tls = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context, limit=1 << 22)
        without = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 22)
        self._servers = [with_tls, without]
        self.ports = with_tls.sockets[0].getsockname()[1], without.sockets[0].getsockname()[1]

    def stop(self) -> None:
        for server in self._servers:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                body = await reader.readexactly(int(length[1])) if length else b""
                if not await self._answer(head, body, writer):
                    break
        writer.close()

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        case = _CASE.search(head + body)
        name = case[0] if case else b"warm-up"
        self.got[name].append(head + body)
        number = _ID.search(body)
        for piece in self.scripts.get(name) or (json_answer(RESULT),):
            if piece == CLOSE or writer.is_closing():
                return False
            writer.write(piece.replace(b"(asked)", number[1] if number else b"null"))
            await writer.drain()
            await asyncio.sleep(0.002)
        return True


RESULT = b'{"jsonrpc":"2.0","id":(asked),"result":{"content":[{"type":"text","text":"fine"}]}}'
# The placeholder for the id is as long as the ids of the cases, so that lengths hold.
ASKED = 1234567


def call(case: str, tool: str = "echo", arguments: str = '"a":1', method: str = "tools/call") -> bytes:
    """Return the body of a call that names its case."""
    return b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":{"name":"%s","arguments":{"case":"%s",%s}}}' % (
        ASKED,
        method.encode(),
        tool.encode(),
        case.encode(),
        arguments.encode(),
    )


def head_for(host: str, length: int | None, more: bytes = b"", *, target: bytes = b"/mcp") -> bytes:
    """Return a request's head, the same for every call but for its length."""
    size = b"" if length is None else b"Content-Length: %d\r\n" % length
    return (
        b"POST %s HTTP/1.1\r\nHost: %s\r\nAccept: application/json, text/event-stream\r\n"
        b"Content-Type: application/json\r\n%s%s\r\n" % (target, host.encode(), more, size)
    )


@dataclass(frozen=True)
class Proxy:
    """A running proxy that exchanges go through."""

    port: int
    ca_file: Path


@dataclass
class Connection:
    """A connection through a proxy."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    known: set[bytes] = field(default_factory=set)
    """The fields of calls that have opened a lane on it."""


type Pool = dict[bool, list[Connection]]
"""Connections that serve again, without TLS and with it."""


async def play(exchange: Exchange, proxy: Proxy, server: ScriptedServer, pool: Pool | None = None) -> Seen:
    """Play one exchange on a connection whose lane is open."""
    host = f"127.0.0.1:{server.ports[1 if exchange.plain else 0]}"
    connection = await _connected(exchange, proxy, host, pool)
    keep = False
    try:
        seen = await _exchange(exchange, connection.reader, connection.writer)
        keep = pool is not None and exchange.simple and is_whole(seen.answer) and not seen.closed
    finally:
        if keep and pool is not None:
            pool.setdefault(exchange.plain, []).append(connection)
        else:
            connection.writer.transport.abort()
    return seen


async def _connected(exchange: Exchange, proxy: Proxy, host: str, pool: Pool | None) -> Connection:
    """Return a connection with an open lane: one that served before and still does, or a new one."""
    while pool is not None and pool.get(exchange.plain):
        connection = pool[exchange.plain].pop()
        try:
            await _warm_up(exchange, connection, host)
        except (OSError, asyncio.IncompleteReadError):
            connection.writer.transport.abort()
        else:
            return connection
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    if not exchange.plain:
        await _tunnel(reader, writer, host, proxy.ca_file)
    connection = Connection(reader, writer)
    await _warm_up(exchange, connection, host)
    return connection


async def _warm_up(exchange: Exchange, connection: Connection, host: str) -> None:
    target = b"http://%s/mcp" % host.encode() if exchange.plain else b"/mcp"
    for number in range(1 if exchange.warm in connection.known else WARM_UP):
        body = call(f"warm-{number}")
        connection.writer.write(head_for(host, len(body), exchange.warm, target=target) + body)
        await _one_answer(connection.reader)
    connection.known.add(exchange.warm)


async def _tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, ca_file: Path) -> None:
    writer.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    context = ssl.create_default_context(cafile=ca_file)
    context.check_hostname = False
    context.set_alpn_protocols(["http/1.1"])
    await writer.start_tls(context, server_hostname="127.0.0.1")


async def _one_answer(reader: asyncio.StreamReader) -> None:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    length = _LENGTH.search(head)
    assert length, head
    await reader.readexactly(int(length[1]))


async def _exchange(exchange: Exchange, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Seen:
    seen = Seen(gone=CLOSE in exchange.asks)
    try:
        for piece in exchange.asks:
            if piece == CLOSE:
                writer.transport.abort()
                break
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.002)
        while not seen.closed and not (exchange.simple and is_whole(seen.answer)):
            data = await asyncio.wait_for(reader.read(1 << 16), QUIET if seen.answer else SILENT)
            seen.closed = not data
            seen.answer += data
    except TimeoutError:
        pass
    except (OSError, RuntimeError):  # RuntimeError: what uvloop says of a connection that was closed meanwhile
        seen.reset = True
    return seen


def is_whole(answer: bytes) -> bool:
    """Return whether bytes are one response to its end, and no more."""
    head, end, body = answer.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if not end or b" 1" in head[:10]:
        return False
    return len(body) == int(length[1]) if length else b"chunked" in head.lower() and body.endswith(b"0\r\n\r\n")
