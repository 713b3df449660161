"""The certificates that the proxy shows to clients, renewed in time.

Replaces mitmproxy's TlsConfig for function: mitmproxy shows a certificate that it made once for as long as it is in
its store, even past its end, and a daemon may run for longer than that. Unnecessary once its CertStore checks
`notafter`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mitmproxy.addons import tlsconfig
from mitmproxy.connection import Server
from mitmproxy.proxy.layers.http import is_h3_alpn

if TYPE_CHECKING:
    from mitmproxy.certs import CertStoreEntry
    from mitmproxy.proxy.context import Context
    from mitmproxy.tls import ClientHelloData, TlsData

RENEWED_BEFORE = 7 * 86_400.0
"""Seconds before its end from which a certificate is no longer shown: a connection may last for days."""


class Certificates(tlsconfig.TlsConfig):
    """mitmproxy's TLS settings with certificates that are renewed."""

    # mitmproxy answers every request whose path ends like that of its revocation list, in the server's name: a path
    # that no policy decides on. Only certificates copied from a server's refer to that list, and none are here
    # (`upstream_cert` is off).
    request = None  # type: ignore[assignment]

    def tls_clienthello(self, tls_clienthello: ClientHelloData) -> None:
        """Drop HTTP/3 from what a client offers: mitmproxy would offer the same to the server, over TCP."""
        client = tls_clienthello.context.client
        client.alpn_offers = [offer for offer in client.alpn_offers if not is_h3_alpn(offer)]
        super().tls_clienthello(tls_clienthello)

    def tls_start_server(self, tls_start: TlsData) -> None:
        """Ask the server for its host without a final dot, which is no part of a name in TLS (RFC 6066, section 3).

        With one OpenSSL refuses to verify the name, this hook would fail, and the client would wait in vain.
        """
        server = tls_start.conn
        assert isinstance(server, Server)
        name = server.sni or tls_start.context.client.sni or (server.address or ("",))[0]
        server.sni = name.removesuffix(".") or None
        super().tls_start_server(tls_start)

    def get_cert(self, conn_context: Context) -> CertStoreEntry:
        """Return the certificate for the host that a client wants."""
        entry = super().get_cert(conn_context)
        if time.time() < entry.cert.notafter.timestamp() - RENEWED_BEFORE:
            return entry
        # Both hold the old one: `certs` would find it again, `expire_queue` would delete its successor by name.
        store = self.certstore
        store.certs = {name: each for name, each in store.certs.items() if each is not entry}
        store.expire_queue = [each for each in store.expire_queue if each is not entry]
        return super().get_cert(conn_context)
