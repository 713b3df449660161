"""The certificates that the proxy shows to clients, renewed in time.

Replaces mitmproxy's TlsConfig for function: mitmproxy shows a certificate that it made once for as long as it is in
its store, even past its end, and a daemon may run for longer than that. Unnecessary once its CertStore checks
`notafter`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mitmproxy.addons import tlsconfig
from mitmproxy.proxy.layers.http import is_h3_alpn

if TYPE_CHECKING:
    from mitmproxy.certs import CertStoreEntry
    from mitmproxy.proxy.context import Context
    from mitmproxy.tls import ClientHelloData

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
