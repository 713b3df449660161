"""Chooses how a connection is read: as TLS or as HTTP, and as nothing else.

Stands in for mitmproxy's NextLayer, which falls back to raw TCP, UDP and DNS and
so lets bytes through that no hook ever sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import tunnel
from mitmproxy.proxy.layers import modes
from mitmproxy.proxy.layers.http import HTTPMode
from mitmproxy.proxy.mode_specs import ReverseMode

from addons.mitm.fast.tls_records import OpenClientTls
from addons.mitm.http_layer import GuardedHttpLayer

if TYPE_CHECKING:
    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layer import Layer, NextLayer

    from addons.limits import Limits

TLS_HANDSHAKE = b"\x16"


class HttpOnly:
    """The only layers there are: TLS and bounded HTTP."""

    name = "nextlayer"  # mitmproxy's proxy server looks for an addon of this name

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def next_layer(self, nextlayer: NextLayer) -> None:
        """Set the layer that reads what comes; left open while one byte could still be either."""
        data = nextlayer.data_client()
        if data.startswith(TLS_HANDSHAKE) and len(data) < 3:
            return
        nextlayer.layer = self._choose(nextlayer.context, is_tls=starts_like_tls_record(data))

    def _choose(self, context: Context, *, is_tls: bool) -> Layer:
        stack = tunnel.LayerStack()
        outermost = len(context.layers) == 1
        if outermost and isinstance(context.layers[0], modes.HttpProxy):
            if is_tls:
                stack /= OpenClientTls(context)
            stack /= GuardedHttpLayer(context, HTTPMode.regular, self._limits)
            return stack[0]
        if outermost and isinstance(context.layers[0], modes.ReverseProxy):
            return self._reverse(context, stack, is_tls=is_tls)
        if is_tls:
            context.server.tls = True  # what is dialled has TLS as well, in a layer of its own
            return OpenClientTls(context)  # which asks again for what is inside it
        return GuardedHttpLayer(context, HTTPMode.transparent, self._limits)

    def _reverse(self, context: Context, stack: tunnel.LayerStack, *, is_tls: bool) -> Layer:
        mode = context.client.proxy_mode
        assert isinstance(mode, ReverseMode)
        context.server.tls = mode.scheme == "https"  # what is dialled has it in a layer of its own
        if is_tls:
            stack /= OpenClientTls(context)
        stack /= GuardedHttpLayer(context, HTTPMode.transparent, self._limits)
        return stack[0]
