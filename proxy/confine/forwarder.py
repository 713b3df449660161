"""Carries every connection out of a confinement to the proxy, as a tunnel to where it was going.

Runs outside: only its listening sockets are inside. What it cannot carry to the
proxy it closes; there is nowhere else that it could send it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
from typing import TYPE_CHECKING

from proxy.sandbox.namespaces import original_destination

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

    from proxy.egress.dns import FakeAddresses

CHUNK = 1 << 16
MAX_HEAD = 1 << 16
MAX_CONNECTIONS = 1024
PROXY_SECONDS = 60.0
FIRST_BYTE_SECONDS = 5.0
FLUSH_SECONDS = 60.0
TLS_HANDSHAKE = b"\x16"
TOKEN_WANTED = "the proxy wants to know who calls; give --agent and its token"  # noqa: S105  no password


class Forwarder:
    """Forwards to one proxy. `say` tells the person at the terminal what would otherwise stay unseen.

    `host_ports` are those of the machine's own loopback that are reached as the agent's own. There are
    at most so many connections at a time; one past that is closed at once.
    """

    def __init__(
        self,
        proxy: tuple[str, int],
        fakes: FakeAddresses,
        credentials: tuple[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
        host_ports: Iterable[int] = (),
        most: int = MAX_CONNECTIONS,
    ) -> None:
        self._proxy = proxy
        self._host_ports = frozenset(host_ports)
        self._fakes = fakes
        self._credentials = _header(*credentials) if credentials else ""
        self._say = say
        self._said: set[str] = set()
        self._open = 0
        self._most = most

    async def serve(self, listeners: Iterable[socket.socket]) -> list[asyncio.Server]:
        """Forward what comes to the listeners, from now on; return what to keep for that."""
        return [await asyncio.start_server(self._take, sock=listener) for listener in listeners]

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            with contextlib.suppress(OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError):
                if self._open <= self._most:
                    await self._forward(reader, writer)
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address, port = original_destination(writer.get_extra_info("socket"))
        first = b""
        if port in self._host_ports and ipaddress.ip_address(address).is_loopback:
            async with asyncio.timeout(FIRST_BYTE_SECONDS):
                first = await reader.read(CHUNK)
        target = self.target(address, port, first)
        if target is None:
            return
        try:
            async with asyncio.timeout(PROXY_SECONDS):
                outside, proxy = await asyncio.open_connection(*self._proxy, limit=MAX_HEAD)
        except OSError as error:
            self._tell(f"the proxy on {self._proxy[0]}:{self._proxy[1]} does not answer ({error.strerror or error})")
            return
        try:
            proxy.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{self._credentials}\r\n".encode())
            async with asyncio.timeout(PROXY_SECONDS):
                head = await outside.readuntil(b"\r\n\r\n")
            status = head.split(b" ", 2)[1]
            if status == b"200":
                proxy.write(first)
                await _pump(reader, writer, outside, proxy)
            else:
                self._tell(TOKEN_WANTED if status == b"407" else "")
                await _explain(reader, writer, first, head, outside)
        finally:
            proxy.transport.abort()

    def target(self, address: str, port: int, first: bytes = b"") -> str | None:
        """Say for whom a connection to `address` is, as a request line has it; None where it is for nobody.

        An address of loopback was dialled here, not through a redirection, but for the
        host's own ports; and one that could stand for a name and does not was made up.
        """
        literal = ipaddress.ip_address(address)
        if literal.is_loopback and port in self._host_ports:
            # One address, two names; the proxy insists on the one that the client uses, which it says first.
            return f"{'localhost' if b'localhost' in first.lower() else _spell(literal)}:{port}"
        if literal.is_loopback or literal.is_unspecified:
            return None
        name = self._fakes.name(address)
        if name is None and self._fakes.covers(address):
            return None
        return f"{name or _spell(literal)}:{port}"

    def _tell(self, text: str) -> None:
        """Say a thing once: an agent tries again and again."""
        if text and text not in self._said:
            self._said.add(text)
            self._say(text)


def _spell(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    return str(address) if address.version == 4 else f"[{address}]"


def _header(agent: str, token: str) -> str:
    encoded = base64.b64encode(f"{agent}:{token}".encode()).decode()
    return f"Proxy-Authorization: Basic {encoded}\r\n"


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    outside: asyncio.StreamReader,
    proxy: asyncio.StreamWriter,
) -> None:
    """Copy both ways until the proxy is done, or one of them breaks off; a client may end its own half before."""
    async with asyncio.TaskGroup() as ways:
        sending = ways.create_task(_copy(reader, proxy))
        await _copy(outside, writer)
        sending.cancel()
    async with asyncio.timeout(FLUSH_SECONDS):
        writer.close()
        await writer.wait_closed()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK):
        target.write(data)
        await target.drain()
    target.write_eof()


async def _explain(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes, head: bytes, outside: asyncio.StreamReader
) -> None:
    """Pass on why the proxy refuses, to a client that speaks plain HTTP; one that speaks TLS could not read it."""
    async with asyncio.timeout(FIRST_BYTE_SECONDS):
        first = first or await reader.read(CHUNK)
        if first and not first.startswith(TLS_HANDSHAKE):
            writer.write(head + await outside.read(MAX_HEAD))
            await writer.drain()
            writer.write_eof()
            await reader.read(CHUNK)
