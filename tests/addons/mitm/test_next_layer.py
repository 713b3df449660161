"""A connection is read as TLS or as HTTP, and as nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy.proxy.layers import modes
from mitmproxy.proxy.layers.http import HTTPMode
from mitmproxy.proxy.layers.tls import ClientTLSLayer
from mitmproxy.proxy.mode_specs import ProxyMode

from addons.limits import Limits
from addons.mitm.fast.replacements import FAST
from addons.mitm.http_layer import GuardedHttpLayer
from addons.mitm.next_layer import HttpOnly
from tests.support.tls_fixture import context

HELLO = b"\x16\x03\x01\x02\x00\x01"
OUTER = {"regular": modes.HttpProxy, "reverse:https://s": modes.ReverseProxy, "transparent": modes.TransparentProxy}


def chosen(mode: str, data: bytes, *, is_inside: bool = False, addon: HttpOnly | None = None) -> Any:
    made = context()
    made.client.proxy_mode = ProxyMode.parse(mode)
    OUTER[mode](made)
    if is_inside:
        GuardedHttpLayer(made, HTTPMode.regular, Limits())
    asked: Any = SimpleNamespace(context=made, layer=None, data_client=lambda: data)
    (addon or HttpOnly(Limits())).next_layer(asked)
    return asked.layer


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"SSH-2.0-x\r\n", b"\x00\x00\x00\x05", b"\x16GE"])
@pytest.mark.parametrize("mode", OUTER)
def test_whatever_is_not_tls_is_read_as_http(mode: str, data: bytes) -> None:
    layer = chosen(mode, data)
    assert type(layer) is GuardedHttpLayer
    assert layer.mode is (HTTPMode.regular if mode == "regular" else HTTPMode.transparent)


@pytest.mark.parametrize("mode", OUTER)
def test_a_handshake_is_read_as_tls(mode: str) -> None:
    assert type(chosen(mode, HELLO)) is ClientTLSLayer
    assert type(chosen(mode, HELLO, is_inside=True)) is ClientTLSLayer


@pytest.mark.parametrize("data", [b"\x16", b"\x16\x03"])
def test_a_start_that_could_be_either_waits_for_more(data: bytes) -> None:
    assert chosen("regular", data) is None


def test_the_layers_for_speed_are_chosen_where_they_are_given() -> None:
    addon = HttpOnly(Limits(), FAST.http_layer, FAST.client_tls)
    assert type(chosen("regular", HELLO, addon=addon)) is FAST.client_tls
    assert type(chosen("regular", b"GET", addon=addon)) is FAST.http_layer
