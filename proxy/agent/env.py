"""The variables that send an agent's programs through a proxy and let them trust its CA. Pure.

The one place that knows them: `interlock env` prints them, `interlock exec` sets
them, `interlock up` shows the most needed, and the probe's sinkhole trusts by the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

PROXY: Final = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy")
"""Both cases: curl reads `http_proxy` in lower case alone, others the upper case alone."""
BYPASS: Final = ("NO_PROXY", "no_proxy", "npm_config_noproxy", "NPM_CONFIG_NOPROXY")
"""Whatever these name would go around the proxy."""
ROOTS: Final = (
    "SSL_CERT_FILE",  # OpenSSL and so Python, Ruby and PHP; Go; Rust's native certificates; uv
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "HTTPLIB2_CA_CERTS",
    "WEBSOCKET_CLIENT_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
)
"""These take a file in place of the system's roots, so it must hold those too."""
EXTRA: Final = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")
"""These take a file beside the roots that the program has."""
NODE_PROXY: Final = "NODE_USE_ENV_PROXY"
SHOWN: Final = ("HTTPS_PROXY", "HTTP_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", NODE_PROXY)
"""What most agents need, for where all would be too much to read."""
OURS: Final = "INTERLOCK_"
"""Settings and secrets of the proxy's own begin so; no agent gets them."""

type Changes = dict[str, str | None]
"""What becomes of variables: a value, or None for one that must not be set."""


@dataclass(frozen=True, slots=True)
class ProxyEndpoint:
    """How an agent gets into a proxy: its URL, its CA's certificate, and a file of that and the system's roots."""

    url: str
    ca: str
    bundle: str


def proxy_url(address: str, agent: str | None = None, token: str | None = None) -> str:
    """Return the URL of a proxy that listens on `address`, with an agent's name and token where there are some."""
    credentials = f"{quote(agent, safe='')}:{quote(token or '', safe='')}@" if agent else ""
    return f"http://{credentials}{reached(address)}"


def reached(address: str) -> str:
    """Return an address to dial for one to listen on: whoever listens on all is there on loopback."""
    host, _, port = address.rpartition(":")
    return f"{_ON_ALL.get(host, host)}:{port}"


_ON_ALL: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  nothing listens here


def trust(endpoint: ProxyEndpoint) -> Changes:
    """Say what makes programs trust the proxy's CA."""
    return {**dict.fromkeys(ROOTS, endpoint.bundle), **dict.fromkeys(EXTRA, endpoint.ca)}


def through_proxy(endpoint: ProxyEndpoint) -> Changes:
    """Say what makes programs go through the proxy, to everywhere, and trust it."""
    return dict.fromkeys(PROXY, endpoint.url) | {NODE_PROXY: "1"} | trust(endpoint) | dict.fromkeys(BYPASS)


def without_proxy(endpoint: ProxyEndpoint) -> Changes:
    """Say what makes programs go straight, and trust the proxy's CA: for where the network leads through it."""
    return dict.fromkeys((*PROXY, NODE_PROXY, *BYPASS)) | trust(endpoint)


def change(environ: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """Return an agent's environment: `environ` so changed, and without anything of ours."""
    kept = {name: value for name, value in environ.items() if name not in changes and not name.startswith(OURS)}
    return kept | {name: value for name, value in changes.items() if value is not None}
