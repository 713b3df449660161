"""The certificates that the proxy shows, and the TLS it speaks with clients and servers."""

from __future__ import annotations

from mitmproxy.addons.tlsconfig import TlsConfig


class Certificates(TlsConfig):
    """mitmproxy's own, without the answers it gives in a server's name.

    It answers every request whose path ends like that of its list of revoked certificates, which only
    certificates copied from a server's lead to; none are here (`upstream_cert`).
    """

    request = None  # type: ignore[assignment]
