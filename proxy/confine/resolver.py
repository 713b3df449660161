"""Answers a confined agent's DNS queries: every name gets a made-up address, and no query leaves.

The address leads to the forwarder, which knows the name by it; so the
proxy resolves names, after policy has allowed them. `answer_query` is pure.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
from typing import TYPE_CHECKING

from proxy.egress import dns

if TYPE_CHECKING:
    import socket
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Iterable

# Reserved for benchmarks (RFC 2544), and a unique local prefix: no real host has such an address.
NETWORKS = (ipaddress.ip_network("198.18.0.0/15"), ipaddress.ip_network("fd69:6e74:6572:6c6f::/96"))
LOOPBACK = {dns.A: "127.0.0.1", dns.AAAA: "::1"}
MAX_NAME = 253
IDLE_SECONDS = 10.0
MAX_STREAMS = 64
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?:{_LABEL}\.)*(?!(?:[0-9]+|0x[0-9a-f]*)$){_LABEL}")


def new_addresses() -> dns.FakeAddresses:
    return dns.FakeAddresses(*NETWORKS)


def answer_query(query: bytes, fakes: dns.FakeAddresses) -> bytes | None:
    """Return the answer to a query; None for what is no query."""
    if not dns.is_query(query):
        return None
    try:
        queried, kind, end = dns.read_question(query)
    except ValueError:
        return None
    if query[end - 2 : end] != b"\0\1":  # the class Internet; a question cut short has none
        return None
    name = queried.lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return dns.make_answer(query, end, LOOPBACK.get(kind))
    # The name gets into a CONNECT line, so only host names pass; a last label that is a number, hexadecimal too,
    # would be read as an IP address there.
    if len(name) > MAX_NAME or not _HOST.fullmatch(name):
        return dns.make_answer(query, end, code=dns.NO_SUCH_NAME)
    if kind not in LOOPBACK:
        return dns.make_answer(query, end)
    addresses = fakes.assign(name)
    if addresses is None:
        return dns.make_answer(query, end, code=dns.SERVER_FAILURE)
    return dns.make_answer(query, end, addresses[0 if kind == dns.A else 1])


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, fakes: dns.FakeAddresses) -> None:
        self._fakes = fakes
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.DatagramTransport)
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        answer = answer_query(data, self._fakes)
        if answer is not None and self._transport is not None:
            self._transport.sendto(answer, addr)


async def serve_names(
    fakes: dns.FakeAddresses, datagrams: Iterable[socket.socket], listeners: Iterable[socket.socket]
) -> list[asyncio.Server]:
    """Begin to answer queries over UDP and TCP; return the servers, which the caller must hold."""
    talking = 0

    async def take(reader: StreamReader, writer: StreamWriter) -> None:
        nonlocal talking
        talking += 1
        try:
            if talking <= MAX_STREAMS:
                await converse(reader, writer)
        finally:
            talking -= 1
            writer.close()

    async def converse(reader: StreamReader, writer: StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            while True:
                async with asyncio.timeout(IDLE_SECONDS):
                    query = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
                answer = answer_query(query, fakes)
                if answer is None:
                    return
                writer.write(len(answer).to_bytes(2) + answer)
                await writer.drain()

    loop = asyncio.get_running_loop()
    for datagram in datagrams:
        await loop.create_datagram_endpoint(lambda: _Datagrams(fakes), sock=datagram)
    return [await asyncio.start_server(take, sock=listener) for listener in listeners]
