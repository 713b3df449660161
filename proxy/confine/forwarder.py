"""Forwards every connection of a confined agent to the proxy, as a CONNECT tunnel to its destination.

Runs outside of the namespace: only its listening sockets are inside. A connection that it
cannot forward is closed; the agent has no other way out.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import resource
import signal
from typing import TYPE_CHECKING

from proxy.confine.resolver import new_addresses, serve_names
from proxy.sandbox.namespaces import original_destination

if TYPE_CHECKING:
    import socket
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Callable, Iterable

    from proxy.confine.namespace_setup import ListeningSockets
    from proxy.egress.dns import FakeAddresses

CHUNK = 1 << 16
MAX_HEAD = 1 << 16
MAX_CONNECTIONS = 1024
# Descriptors for DNS, and for connections above the limit, which are accepted before they are closed.
SPARE = 512
PROXY_SECONDS = 60.0
FIRST_BYTE_SECONDS = 5.0
FLUSH_SECONDS = 60.0
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")  # of this machine's loopback, in profiles
TLS_HANDSHAKE = b"\x16"
TOKEN_WANTED = "the proxy requires agents to authenticate; give --agent and --token-file"  # noqa: S105  no password


class Forwarder:
    """Forwards to one proxy. `say` prints problems for the person at the terminal, each once."""

    def __init__(
        self,
        proxy: tuple[str, int],
        fakes: FakeAddresses,
        credentials: tuple[str, str] | None = None,
        say: Callable[[str], None] = lambda _: None,
        host_ports: Iterable[int] = (),
        most: int = MAX_CONNECTIONS,
        allowed: Callable[[str, int], bool] | None = None,
        on_refused: Callable[[str, int], None] = lambda _host, _port: None,
        destination: Callable[[socket.socket], tuple[str, int]] | None = None,
    ) -> None:
        self._proxy = proxy
        self._allowed = allowed  # which hosts and ports may be reached; all where it is None
        self._on_refused = on_refused
        self._destination = destination or (lambda connection: original_destination(connection))  # noqa: PLW0108
        self._host_ports = frozenset(host_ports)  # of the machine's loopback, reachable through the proxy
        self._fakes = fakes
        encoded = base64.b64encode(":".join(credentials or ()).encode()).decode()
        self._headers = f"Proxy-Authorization: Basic {encoded}\r\n" if credentials else ""
        # Names are resolved by the proxy, so it is the proxy that keeps them from leading back to this machine.
        self._headers += f"Interlock-Confined: {','.join(map(str, sorted(self._host_ports))) or 'none'}\r\n"
        self._say = say
        self._said: set[str] = set()
        self._open = 0
        self._most = most  # connections that are open at a time; one more is closed at once

    async def serve(self, listeners: Iterable[socket.socket]) -> list[asyncio.Server]:
        """Begin to forward; return the servers, which the caller must hold."""
        return [await asyncio.start_server(self._take, sock=listener) for listener in listeners]

    async def _take(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._open += 1
        try:
            with contextlib.suppress(OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError):
                if self._open <= self._most:
                    await self._forward(reader, writer)
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _forward(self, reader: StreamReader, writer: StreamWriter) -> None:
        address, port = self._destination(writer.get_extra_info("socket"))
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
            host, number = self._proxy
            self._say_once(f"the proxy on {host}:{number} does not answer ({error.strerror or error})")
            return
        try:
            proxy.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{self._headers}\r\n".encode())
            async with asyncio.timeout(PROXY_SECONDS):
                head = await outside.readuntil(b"\r\n\r\n")
            status = head.split(b" ", 2)[1]
            if status == b"200":
                proxy.write(first)
                await _pump(reader, writer, outside, proxy)
            else:
                if status == b"407":
                    self._say_once(TOKEN_WANTED)
                await _explain(reader, writer, first, head, outside)
        finally:
            proxy.transport.abort()

    def target(self, address: str, port: int, first: bytes = b"") -> str | None:
        """Return the destination of a connection to `address` for a CONNECT line; None where it is to be closed."""
        literal = ipaddress.ip_address(address)
        if literal.is_loopback and port in self._host_ports and self._lets_local(port):
            # One address, two names; the proxy insists on the one in the client's Host header.
            return f"{'localhost' if b'localhost' in first.lower() else _host_text(literal)}:{port}"
        # Dialled directly, not redirected: as a tunnel it would lead to the loopback of the proxy's own host.
        if literal.is_loopback or literal.is_unspecified:
            return None
        name = self._fakes.name(address)
        # An address of ours that was assigned to no name: the agent guessed it, and no policy could judge it.
        if name is None and self._fakes.covers(address):
            return None
        if self._allowed is not None and not self._allowed(name or str(literal), port):
            self._on_refused(name or str(literal), port)
            return None
        return f"{name or _host_text(literal)}:{port}"

    def _lets_local(self, port: int) -> bool:
        """Return whether a port of this machine may be reached, under whichever of its names; tell where it may not."""
        if self._allowed is None or any(self._allowed(name, port) for name in LOCAL_NAMES):
            return True
        self._on_refused(LOCAL_NAMES[0], port)
        return False

    def _say_once(self, text: str) -> None:
        if text not in self._said:  # an agent tries again and again
            self._said.add(text)
            self._say(text)


def _host_text(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    return str(address) if address.version == 4 else f"[{address}]"


async def _pump(reader: StreamReader, writer: StreamWriter, outside: StreamReader, proxy: StreamWriter) -> None:
    """Copy in both directions until the proxy is done, or one side breaks off."""
    # Only the proxy's end ends it: a client may close its sending half and still wait for the response.
    async with asyncio.TaskGroup() as ways:
        sending = ways.create_task(_copy(reader, proxy))
        await _copy(outside, writer)
        sending.cancel()
    async with asyncio.timeout(FLUSH_SECONDS):
        writer.close()
        await writer.wait_closed()


async def _copy(source: StreamReader, target: StreamWriter) -> None:
    while data := await source.read(CHUNK):
        target.write(data)
        await target.drain()
    target.write_eof()


async def _explain(
    reader: StreamReader, writer: StreamWriter, first: bytes, head: bytes, outside: StreamReader
) -> None:
    """Send the proxy's refusal to a client that speaks plain HTTP; one that speaks TLS could not read it."""
    async with asyncio.timeout(FIRST_BYTE_SECONDS):
        first = first or await reader.read(CHUNK)
        if first and not first.startswith(TLS_HANDSHAKE):
            writer.write(head + await outside.read(MAX_HEAD))
            await writer.drain()
            writer.write_eof()
            await reader.read(CHUNK)  # closing with unread input sends a reset, which can destroy the answer


async def start_gateway(
    proxy: tuple[str, int],
    credentials: tuple[str, str] | None,
    sockets: ListeningSockets,
    say: Callable[[str], None],
    host_ports: Iterable[int] = (),
) -> list[asyncio.Server]:
    """Begin to forward connections and to answer DNS queries; return the servers, which the caller must hold."""
    allowed = allow_descriptors(2 * MAX_CONNECTIONS + SPARE)
    # Bounded by our own limit: a forwarder without descriptors could not even refuse.
    most = max(1, min(MAX_CONNECTIONS, (allowed - SPARE) // 2))
    fakes = new_addresses()
    for each in (*sockets.forwarder, *sockets.datagrams, *sockets.streams):
        each.setblocking(False)
    servers = await Forwarder(proxy, fakes, credentials, say, host_ports, most).serve(sockets.forwarder)
    return servers + await serve_names(fakes, sockets.datagrams, sockets.streams)


async def serve_sandbox(
    proxy: tuple[str, int],
    sockets: Iterable[socket.socket],
    allowed: Callable[[str, int], bool] | None,
    on_refused: Callable[[str, int], None],
    *,
    host_ports: Iterable[int] = (),
    redirected: bool = False,
) -> list[asyncio.Server]:
    """Serve the sockets of a sandbox (`proxy/sandbox/loopback.py`): the last two of each family are for DNS."""
    by_family: dict[int, list[socket.socket]] = {}
    for each in sockets:
        each.setblocking(False)
        by_family.setdefault(each.family, []).append(each)
    fakes = new_addresses()
    forwarder = Forwarder(
        proxy,
        fakes,
        host_ports=host_ports,
        most=256,
        allowed=allowed,
        on_refused=on_refused,
        destination=None if redirected else _dialled,
    )
    made: list[asyncio.Server] = []
    for family in by_family.values():
        made += await forwarder.serve(family[:-2])
        made += await serve_names(fakes, family[-2:-1], family[-1:])
    return made


def _dialled(connection: socket.socket) -> tuple[str, int]:
    # Nothing was redirected: every address is the namespace's own, so the one that was dialled is the socket's.
    address, port = connection.getsockname()[:2]
    return address, port


def allow_descriptors(count: int) -> int:
    """Raise this process's limit of open files to `count`, as far as the system allows; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


async def serve_gateway(
    proxy: tuple[str, int],
    credentials: tuple[str, str] | None,
    sockets: ListeningSockets,
    say: Callable[[str], None],
    on_ready: Callable[[], None],
) -> None:
    """Serve until SIGTERM or SIGINT."""
    servers = await start_gateway(proxy, credentials, sockets, say)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    on_ready()
    await stopped.wait()
    for server in servers:
        with contextlib.suppress(OSError):
            server.close()
