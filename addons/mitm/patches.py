"""Every place where a part of mitmproxy is put out for one of ours. They hold for the process.

Each was written against the version below. Another one is refused at the start, since a part that is not
where it was may be a check that is not made; tests/addons/mitm/test_patches.py says where to look then.
"""

from __future__ import annotations

import copy
from typing import Any

from mitmproxy import http, optmanager, version
from mitmproxy.net.http import http1
from mitmproxy.proxy import mode_servers, server
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers import tls as tls_layers

from addons.mitm.fast import header_checks
from addons.mitm.fast.connection_handler import DirectHandler
from addons.mitm.fast.header_index import METHODS
from addons.mitm.fast.tls_records import OpenServerTls
from addons.mitm.http_connections import GuardedHttp1Client
from addons.mitm.http_layer import QuickHttpClient
from addons.mitm.pinned_dial import DiallingAsyncio

KNOWN = "12.2."


def embed() -> None:
    """Put all of them in place. Raises RuntimeError where mitmproxy is of a version that they are not made for."""
    if not version.VERSION.startswith(KNOWN):
        raise RuntimeError(f"mitmproxy is {version.VERSION}, and this interlock is made for {KNOWN}x; install that")
    replace_dialling()
    replace_layers()
    replace_handler()
    drop_type_checks()
    index_headers()
    check_quickly()
    copy_less()


def replace_dialling() -> None:
    """Make every connection that mitmproxy opens go through `dialling.dial`."""
    server.asyncio = DiallingAsyncio()  # type: ignore[assignment]


def replace_layers() -> None:
    """Make mitmproxy take ours for the layers of a connection to a server; those of a client's are ours to choose."""
    http_layers.Http1Client = GuardedHttp1Client  # type: ignore[misc]
    http_layers.HttpClient = QuickHttpClient  # type: ignore[misc]
    tls_layers.ServerTLSLayer = OpenServerTls  # type: ignore[misc]


def replace_handler() -> None:
    """Make mitmproxy take DirectHandler for every client connection."""
    mode_servers.ProxyConnectionHandler = DirectHandler  # type: ignore[misc]


def drop_type_checks() -> None:
    """Spare each message a check of every field's type, which only ever tells of mistakes in mitmproxy itself."""
    http.MessageData.__post_init__ = _trust  # type: ignore[method-assign]


def _trust(_: http.MessageData) -> None:
    """Check nothing."""


def index_headers() -> None:
    """Have headers looked up by an index."""
    for name, method in METHODS.items():
        setattr(http.Headers, name, method)


def check_quickly() -> None:
    """Have plain heads checked quickly."""
    http_layers.validate_headers = header_checks.validate_headers
    http1.expected_http_body_size = header_checks.expected_http_body_size


def copy_less() -> None:
    """Spare each look at an option a copy of what cannot change, and each fork of a context a connection."""
    optmanager._Option.current = _current  # type: ignore[method-assign]  # noqa: SLF001
    Context.fork = _fork  # type: ignore[method-assign]


def _current(self: optmanager._Option) -> Any:
    value = self._default if self.value is optmanager.unset else self.value
    return value if value is None or isinstance(value, str | int | float) else copy.deepcopy(value)


def _fork(self: Context) -> Context:
    made = Context.__new__(Context)
    made.client, made.server, made.options, made.layers = self.client, self.server, self.options, self.layers.copy()
    return made
