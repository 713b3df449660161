"""The environment variables that send programs through a proxy and make them trust its CA. Pure.

`interlock env` prints them, `interlock exec` sets them, `interlock up` shows the most common ones, and the probe's
sinkhole uses the same list for trust.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

# Both cases: curl reads `http_proxy` in lower case only, other programs the upper case only.
PROXY: Final = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy")
# Hosts named in these would bypass the proxy.
BYPASS: Final = ("NO_PROXY", "no_proxy", "npm_config_noproxy", "NPM_CONFIG_NOPROXY")
# A file in these replaces the system's roots, so it must contain those too: the bundle.
ROOTS: Final = (
    "SSL_CERT_FILE",  # OpenSSL and so Python, Ruby and PHP; Go; Rust's native certificates; uv
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO"),
    *("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "HTTPLIB2_CA_CERTS"),
    *("WEBSOCKET_CLIENT_CA_BUNDLE", "NIX_SSL_CERT_FILE"),
    "npm_config_cafile",  # npm: a `cafile` in npmrc would replace NODE_EXTRA_CA_CERTS; the environment comes before it
)
# A file in these is added to the program's own roots: the CA alone.
EXTRA: Final = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")
NODE_PROXY: Final = "NODE_USE_ENV_PROXY"
# Node loads a script by this one, for what NODE_PROXY does not cover; it may hold options of the user's, too.
NODE_OPTIONS: Final = "NODE_OPTIONS"
SHOWN: Final = (
    *("HTTPS_PROXY", "HTTP_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *(NODE_PROXY, NODE_OPTIONS),
)
# The proxy's own settings and secrets (the operator's token, the commit secret) start so; no agent gets them.
OURS: Final = "INTERLOCK_"

_BARE: Final = re.compile(r"[\w./@%+=:,-]+")

# A value for each variable; None for one that must not be set.
type Changes = dict[str, str | None]


@dataclass(frozen=True, slots=True)
class ProxyEndpoint:
    """What an agent needs: the proxy's URL, its CA's certificate, and a bundle of that and the system's roots.

    `node_script` makes every version of Node use the proxy, `node_options` is what NODE_OPTIONS holds already.
    """

    url: str
    ca: str
    bundle: str
    node_script: str
    node_options: str = ""


def proxy_url(address: str, agent: str | None = None, token: str | None = None) -> str:
    """Return the URL of a proxy at `address`, with the agent's name and token if given."""
    credentials = f"{quote(agent, safe='')}:{quote(token or '', safe='')}@" if agent else ""
    return f"http://{credentials}{reached(address)}"


def reached(address: str) -> str:
    """Return the address to dial for a listen address: loopback for one that listens on all interfaces."""
    host, _, port = address.rpartition(":")
    return f"{_ON_ALL.get(host, host)}:{port}"


_ON_ALL: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104  nothing listens here


def trust(endpoint: ProxyEndpoint) -> Changes:
    """Return the variables that make programs trust the proxy's CA."""
    return {**dict.fromkeys(ROOTS, endpoint.bundle), **dict.fromkeys(EXTRA, endpoint.ca)}


def through_proxy(endpoint: ProxyEndpoint) -> Changes:
    """Return the variables that send programs through the proxy, for every host, and make them trust it."""
    node = {NODE_PROXY: "1", NODE_OPTIONS: with_script(endpoint.node_options, endpoint.node_script)}
    return dict.fromkeys(PROXY, endpoint.url) | node | trust(endpoint) | dict.fromkeys(BYPASS)


def with_script(options: str, script: str) -> str:
    """Return a value of NODE_OPTIONS that makes Node load `script` first, and then do what `options` say."""
    # Node splits the value at blanks; inside double quotes it takes a backslash for an escape.
    quoted = script if _BARE.fullmatch(script) else '"{}"'.format(script.replace("\\", "\\\\").replace('"', '\\"'))
    first = f"--require {quoted}"
    rest = options.removeprefix(first).strip()
    return f"{first} {rest}" if rest else first


def without_proxy(endpoint: ProxyEndpoint) -> Changes:
    """Return the variables for a confined agent: trust, but no proxy, since its network leads there anyway."""
    return dict.fromkeys((*PROXY, NODE_PROXY, *BYPASS)) | trust(endpoint)


def change(environ: Mapping[str, str], changes: Changes) -> dict[str, str]:
    """Return `environ` with `changes` applied and without the proxy's own variables."""
    kept = {name: value for name, value in environ.items() if name not in changes and not name.startswith(OURS)}
    return kept | {name: value for name, value in changes.items() if value is not None}
