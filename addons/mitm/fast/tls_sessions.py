"""TLS sessions with servers, taken up again for a while: no certificate is sent and verified a second time.

A session stands for a certificate that was verified. So it is kept for the name it was verified for, under the
settings it was verified with, and for no other; and not for long, since a certificate may be withdrawn or run out.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from mitmproxy.connection import Server
from OpenSSL import SSL

if TYPE_CHECKING:
    from collections.abc import Callable

    from mitmproxy.connection import Connection
    from mitmproxy.proxy.server_hooks import ServerConnectionHookData
    from mitmproxy.tls import TlsData

SECONDS = 300.0
MAX_KEPT = 256


class _Place(NamedTuple):
    """What a session is good for. The context has what is trusted, how far, and any certificate of our own."""

    context: SSL.Context
    name: str | None
    address: tuple[str, int] | None
    offers: tuple[bytes, ...]


class _Open(NamedTuple):
    place: _Place
    connection: SSL.Connection
    until: float
    """When the server's certificate is to be verified again. Taking a session up does not put that off."""


class _Kept(NamedTuple):
    session: SSL.Session
    until: float


class ServerTlsSessions:
    """The addon that keeps sessions. Stands after the one that begins TLS."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, _Open] = {}
        self._kept: dict[_Place, _Kept] = {}

    def tls_start_server(self, tls_start: TlsData) -> None:
        """Offer the server to go on with the session that it had."""
        connection, server = tls_start.ssl_conn, tls_start.conn
        if connection is None:
            return
        kept = self._kept.get(_place(connection, server))
        if kept is not None and kept.until > self._clock():
            connection.set_session(kept.session)

    def tls_established_server(self, tls_done: TlsData) -> None:
        """Note a connection whose server was verified, now or when its session began."""
        connection = tls_done.ssl_conn
        if connection is None:
            return
        place, until = _place(connection, tls_done.conn), self._clock() + _seconds(tls_done.conn)
        if SSL._lib.SSL_session_reused(connection._ssl):  # type: ignore[attr-defined]  # noqa: SLF001
            kept = self._kept.get(place)
            until = kept.until if kept is not None else 0.0
        self._open[tls_done.conn.id] = _Open(place, connection, until)

    def tls_failed_server(self, tls_failed: TlsData) -> None:
        """Begin anew with a server that TLS failed with."""
        if tls_failed.ssl_conn is not None:
            self._kept.pop(_place(tls_failed.ssl_conn, tls_failed.conn), None)

    def server_disconnected(self, data: ServerConnectionHookData) -> None:
        """Keep the session of a connection that ends: what takes it up comes some time after the handshake."""
        known = self._open.pop(data.server.id, None)
        session = known.connection.get_session() if known is not None else None
        if known is None or session is None:
            return
        # OpenSSL takes a session away with a connection that ended without a goodbye, as many do.
        known.connection.set_shutdown(SSL.SENT_SHUTDOWN | SSL.RECEIVED_SHUTDOWN)
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[known.place] = _Kept(session, known.until)


def _seconds(server: Connection) -> float:
    """Return how long what was verified holds: until a certificate of the chain runs out, and never long."""
    now = datetime.now(UTC)
    return min([SECONDS, *((certificate.notafter - now).total_seconds() for certificate in server.certificate_list)])


def _place(connection: SSL.Connection, server: Connection) -> _Place:
    assert isinstance(server, Server)
    address = (str(server.address[0]), server.address[1]) if server.address else None
    return _Place(connection.get_context(), server.sni, address, tuple(server.alpn_offers))
