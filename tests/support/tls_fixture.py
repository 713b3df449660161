"""TLS without sockets: a server of Python's own, and the addons that begin TLS with it."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING

import trustme
from mitmproxy import options
from mitmproxy.connection import Client, ConnectionState, Server
from mitmproxy.proxy.context import Context
from mitmproxy.test import taddons

from addons.mitm.certificates import Certificates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from OpenSSL import SSL


class Far:
    """The other side of a connection: bytes in, bytes out."""

    def __init__(self, context: ssl.SSLContext, *, name: str | None = None) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=name is None, server_hostname=name)
        self.done = False

    def take(self, data: bytes) -> bytes:
        """Take what came, and give what is to be sent, up to the end of the handshake."""
        self._in.write(data)
        if not self.done:
            try:
                self.tls.do_handshake()
                self.done = True
            except ssl.SSLWantReadError:
                pass
        return self._out.read()

    def said(self) -> bytes:
        """Return what was read so far."""
        read = b""
        try:
            while piece := self.tls.read(1 << 16):
                read += piece
        except ssl.SSLWantReadError:
            pass
        return read

    def say(self, data: bytes) -> bytes:
        """Return what `data` is when encrypted."""
        self.tls.write(data)
        return self._out.read()


class Authority:
    """Who vouches for servers."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self.file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def server(self, *names: str) -> ssl.SSLContext:
        """Return the settings of a server of these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(*names).configure_cert(context)
        return context


def context() -> Context:
    """Return the context of a client that is there."""
    client = Client(peername=("c", 1), sockname=("127.0.0.1", 2), state=ConnectionState.OPEN)
    return Context(client, options.Options())


def certificates(folder: Path, ca: Path, kind: type[Certificates] = Certificates) -> Iterator[Certificates]:
    """Return the addon as the daemon has it."""
    addon = kind()
    with taddons.context(addon) as world:
        world.configure(addon, confdir=str(folder), ssl_verify_upstream_trusted_ca=str(ca), upstream_cert=False)
        yield addon


def server(name: str, port: int = 443) -> Server:
    """Return a connection to a server."""
    made = Server(address=(name, port))
    made.sni = name
    return made


def shake(connection: SSL.Connection, far: Far) -> None:
    """Shake hands. Raises SSL.Error where that fails."""
    from OpenSSL import SSL

    for _ in range(6):
        with contextlib.suppress(SSL.WantReadError):
            connection.do_handshake()
        try:
            answer = far.take(connection.bio_read(1 << 16))
        except SSL.WantReadError:
            answer = far.take(b"")
        if answer:
            connection.bio_write(answer)
    with contextlib.suppress(SSL.WantReadError):
        connection.recv(1)
