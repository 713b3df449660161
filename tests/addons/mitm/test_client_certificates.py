"""Which connections are asked for a certificate; tests/daemon/test_agent_identity.py has real ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import options
from mitmproxy.connection import Client
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import modes
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode
from mitmproxy.proxy.layers.tls import ClientTLSLayer

from addons.mitm.client_certificates import ClientCertificates, is_outermost


def context(*layers: Any) -> Context:
    made = Context(Client(peername=("c", 1), sockname=("p", 2)), options.Options())
    for layer in layers:
        layer(made)
    return made


def http(made: Context) -> Any:
    return HttpLayer(made, HTTPMode.regular)


@pytest.mark.parametrize(
    ("layers", "asked"),
    [
        ((modes.HttpProxy, ClientTLSLayer, http), True),
        ((modes.ReverseProxy, ClientTLSLayer, http), True),
        ((modes.HttpProxy, http, ClientTLSLayer), False),
        ((modes.HttpProxy, ClientTLSLayer, http, ClientTLSLayer), False),
        ((modes.TransparentProxy, ClientTLSLayer), False),
        ((modes.HttpProxy,), False),
    ],
)
def test_only_tls_with_the_proxy_itself_is_asked(layers: tuple[Any, ...], asked: bool) -> None:
    assert is_outermost(context(*layers)) is asked


def test_tls_inside_a_tunnel_is_left_as_it_is() -> None:
    start = SimpleNamespace(context=context(modes.HttpProxy, http, ClientTLSLayer), ssl_conn="theirs")
    ClientCertificates(None).tls_start_client(start)  # type: ignore[arg-type]
    assert start.ssl_conn == "theirs"
