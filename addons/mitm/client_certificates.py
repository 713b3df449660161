"""Asks clients for a certificate where they speak TLS with the proxy itself.

Replaces the OpenSSL context of such connections for function: mitmproxy asks every client or none, also inside tunnels,
where the client would take the question for the server's. Unnecessary once `request_client_cert` can be limited to the
outermost connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mitmproxy import ctx
from mitmproxy.addons import tlsconfig
from mitmproxy.net import tls
from mitmproxy.proxy.layers import modes
from mitmproxy.proxy.layers.tls import ClientTLSLayer
from OpenSSL import SSL

if TYPE_CHECKING:
    from mitmproxy.proxy.context import Context
    from mitmproxy.tls import TlsData

    from addons.mitm.certificates import Certificates


def is_outermost(context: Context) -> bool:
    """Return whether the TLS that is set up is between the client and the proxy, and not inside a tunnel."""
    layers = context.layers
    if len(layers) < 2 or not isinstance(layers[0], modes.HttpProxy | modes.ReverseProxy):
        return False
    return isinstance(layers[1], ClientTLSLayer) and not any(isinstance(each, ClientTLSLayer) for each in layers[2:])


class ClientCertificates:
    """The addon that asks. It proves only that the client has the key; whose certificate it is, identity finds out."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates

    def tls_start_client(self, tls_start: TlsData) -> None:
        """Start TLS with a client that speaks it with the proxy, and ask for a certificate."""
        context = tls_start.context
        if not is_outermost(context):
            return
        entry = self._certificates.get_cert(context)
        connection = tls_start.ssl_conn = SSL.Connection(self._new_context(entry.chain_file))
        connection.use_certificate(entry.cert.to_cryptography())
        connection.use_privatekey(entry.privatekey)
        tunnels = isinstance(context.layers[0], modes.HttpProxy)
        connection.set_app_data(
            tlsconfig.AppData(
                client_alpn=b"http/1.1" if tunnels else context.client.alpn,
                server_alpn=context.server.alpn,
                http2=ctx.options.http2,
            )
        )
        connection.set_accept_state()

    def _new_context(self, chain_file: object) -> SSL.Context:
        least = tls.Version[ctx.options.tls_version_client_min]
        context: SSL.Context = tls.create_client_proxy_context.__wrapped__(
            method=tls.Method.TLS_SERVER_METHOD,
            min_version=least,
            max_version=tls.Version[ctx.options.tls_version_client_max],
            cipher_list=tlsconfig._default_ciphers(least),  # noqa: SLF001
            ecdh_curve=None,
            chain_file=chain_file,
            request_client_cert=True,
            alpn_select_callback=tlsconfig.alpn_select_callback,
            extra_chain_certs=(),
            dhparams=self._certificates.certstore.dhparams,
        )
        # A session that is resumed brings the certificate and not those between it and the roots.
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.set_options(SSL.OP_NO_TICKET)
        return context
