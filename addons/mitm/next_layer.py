"""Chooses how a connection is read: as TLS or as HTTP, and as nothing else.

Replaces mitmproxy's NextLayer for safety: that one falls back to raw TCP, UDP and DNS, whose bytes pass without a
hook that could refuse them. Unnecessary once mitmproxy can be told to close what is neither TLS nor HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import tunnel
from mitmproxy.proxy.layers import modes
from mitmproxy.proxy.layers.http import HTTPMode
from mitmproxy.proxy.layers.tls import ClientTLSLayer
from mitmproxy.proxy.mode_specs import ReverseMode

from addons.mitm.http_layer import GuardedHttpLayer

if TYPE_CHECKING:
    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layer import Layer, NextLayer

    from addons.limits import Limits

TLS_HANDSHAKE = b"\x16"


class HttpOnly:
    """The addon that chooses layers: TLS and bounded HTTP."""

    name = "nextlayer"  # mitmproxy's proxy server looks for an addon of this name

    def __init__(
        self,
        limits: Limits,
        http_layer: type[GuardedHttpLayer] = GuardedHttpLayer,
        client_tls: type[ClientTLSLayer] = ClientTLSLayer,
    ) -> None:
        self._limits = limits
        self._http_layer = http_layer
        self._client_tls = client_tls

    def next_layer(self, nextlayer: NextLayer) -> None:
        """Set the layer that reads what comes; left open while one byte could still be either."""
        data = nextlayer.data_client()
        if data.startswith(TLS_HANDSHAKE) and len(data) < 3:
            return
        nextlayer.layer = self._choose(nextlayer.context, is_tls=starts_like_tls_record(data))

    def _choose(self, context: Context, *, is_tls: bool) -> Layer:
        outermost = context.layers[0] if len(context.layers) == 1 else None
        if isinstance(outermost, modes.HttpProxy):
            return self._stack(context, HTTPMode.regular, is_tls=is_tls)
        if isinstance(outermost, modes.ReverseProxy):
            mode = context.client.proxy_mode
            assert isinstance(mode, ReverseMode)
            context.server.tls = mode.scheme == "https"  # what is dialled has TLS in a layer of its own
            return self._stack(context, HTTPMode.transparent, is_tls=is_tls)
        if is_tls:
            context.server.tls = True
            return self._client_tls(context)  # which asks again for what is inside it
        return self._http_layer(context, HTTPMode.transparent, self._limits)

    def _stack(self, context: Context, mode: HTTPMode, *, is_tls: bool) -> Layer:
        stack = tunnel.LayerStack()
        if is_tls:
            stack /= self._client_tls(context)
        stack /= self._http_layer(context, mode, self._limits)
        return stack[0]
