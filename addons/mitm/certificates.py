"""The certificates that the proxy shows, and the TLS that it speaks with clients."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from mitmproxy import ctx
from mitmproxy.addons import tlsconfig
from mitmproxy.net import tls
from mitmproxy.proxy.layers import modes
from OpenSSL import SSL

if TYPE_CHECKING:
    from mitmproxy.certs import CertStoreEntry
    from mitmproxy.proxy.context import Context
    from mitmproxy.tls import TlsData

MAX_KEPT = 256
RENEWED_BEFORE = 7 * 86_400.0
"""Seconds before its end from which a certificate is no longer shown: a connection may last for days."""


class _Kept(NamedTuple):
    entry: CertStoreEntry
    context: SSL.Context
    until: float


class Certificates(tlsconfig.TlsConfig):
    """mitmproxy's own, with a certificate put into TLS once, and not again for each connection, and renewed in time.

    Without the answers it gives in a server's name: it answers every request whose path ends like that of its list
    of revoked certificates, which only certificates copied from a server's lead to; none are here (`upstream_cert`).
    """

    request = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def tls_start_client(self, tls_start: TlsData) -> None:
        """Begin TLS with a client, under a certificate for the host it wants."""
        client, server, layers = tls_start.context.client, tls_start.context.server, tls_start.context.layers
        connection = tls_start.ssl_conn = SSL.Connection(self._context(tls_start.context))
        # A client that speaks TLS with the proxy itself asks for tunnels, which there are none of in HTTP/2.
        outermost = len(layers) == 2 and isinstance(layers[0], modes.HttpProxy)
        connection.set_app_data(
            tlsconfig.AppData(
                client_alpn=b"http/1.1" if outermost else client.alpn,
                server_alpn=server.alpn,
                http2=ctx.options.http2,
            )
        )
        connection.set_accept_state()

    def _context(self, asked: Context) -> SSL.Context:
        """Return the settings of TLS under the certificate for the host that is wanted.

        Sessions are a certificate's own: none goes over to another host.
        """
        entry = self.get_cert(asked)
        kept = self._kept.get(id(entry))
        if kept is not None and time.time() < kept.until:
            return kept.context
        if time.time() >= _until(entry):
            self._forget(entry)
            entry = self.get_cert(asked)
        context = self._new_context(entry)
        context.use_certificate(entry.cert.to_cryptography())
        context.use_privatekey(entry.privatekey)
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[id(entry)] = _Kept(entry, context, _until(entry))
        return context

    def _forget(self, old: CertStoreEntry) -> None:
        """Have another certificate made in place of one that ends soon."""
        self._kept.pop(id(old), None)
        store = self.certstore
        store.certs = {name: entry for name, entry in store.certs.items() if entry is not old}
        store.expire_queue = [entry for entry in store.expire_queue if entry is not old]

    def _new_context(self, entry: CertStoreEntry) -> SSL.Context:
        least = tls.Version[ctx.options.tls_version_client_min]
        return tls.create_client_proxy_context.__wrapped__(
            method=tls.Method.TLS_SERVER_METHOD,
            min_version=least,
            max_version=tls.Version[ctx.options.tls_version_client_max],
            cipher_list=tlsconfig._default_ciphers(least),  # noqa: SLF001
            ecdh_curve=None,
            chain_file=entry.chain_file,
            request_client_cert=False,
            alpn_select_callback=tlsconfig.alpn_select_callback,
            extra_chain_certs=(),
            dhparams=self.certstore.dhparams,
        )


def _until(entry: CertStoreEntry) -> float:
    return entry.cert.notafter.timestamp() - RENEWED_BEFORE
