"""The certificates that the proxy shows, and the TLS that it speaks with clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mitmproxy import ctx
from mitmproxy.addons import tlsconfig
from mitmproxy.net import tls
from mitmproxy.proxy.layers import modes
from OpenSSL import SSL

if TYPE_CHECKING:
    from mitmproxy.certs import CertStoreEntry
    from mitmproxy.tls import TlsData

MAX_KEPT = 256


class _Kept(NamedTuple):
    entry: CertStoreEntry
    context: SSL.Context


class Certificates(tlsconfig.TlsConfig):
    """mitmproxy's own, with a certificate put into TLS once, and not again for each connection.

    Without the answers it gives in a server's name: it answers every request whose path ends like that of its list
    of revoked certificates, which only certificates copied from a server's lead to; none are here (`upstream_cert`).
    """

    request = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def tls_start_client(self, tls_start: TlsData) -> None:
        """Begin TLS with a client, under a certificate for the host it wants."""
        client, server, layers = tls_start.context.client, tls_start.context.server, tls_start.context.layers
        connection = tls_start.ssl_conn = SSL.Connection(self._context(self.get_cert(tls_start.context)))
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

    def _context(self, entry: CertStoreEntry) -> SSL.Context:
        """Give the settings of TLS under one certificate. Sessions are its own: none goes over to another host."""
        kept = self._kept.get(id(entry))
        if kept is not None:
            return kept.context
        context = self._new_context(entry)
        context.use_certificate(entry.cert.to_cryptography())
        context.use_privatekey(entry.privatekey)
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[id(entry)] = _Kept(entry, context)
        return context

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
