"""The addon that opens lanes: it learns from requests that passed the layers well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from mitmproxy import ctx
from mitmproxy.proxy.layers.http import HttpLayer

from addons.flow_state import state_of
from addons.lane.lane import Lane
from addons.lane.template import Template
from addons.mitm.fast.connection_handler import FastConnectionHandler
from addons.mitm.fast.http_layer import FastHttp1Client, FastHttp1Server, FastHttpLayer
from addons.mitm.fast.tls_records import FastTls

if TYPE_CHECKING:
    from mitmproxy import http

    from addons.lane.parts import LaneParts

log = structlog.get_logger("interlock.lane")


class Lanes:
    """Stands behind the gate's addons: what one of them has answered or changed teaches nothing."""

    def __init__(self, parts: LaneParts) -> None:
        self._parts = parts

    def response(self, flow: http.HTTPFlow) -> None:
        """Open a lane for the head of a request that was forwarded and answered."""
        try:
            self._learn(flow)
        except Exception as error:  # noqa: BLE001  without a lane, calls go through the layers
            log.warning("no lane is opened", error=str(error))

    def _learn(self, flow: http.HTTPFlow) -> None:
        state = state_of(flow)
        lesson, layer = state.lesson, state.layer
        if lesson is None or state.answered or not isinstance(layer, FastHttpLayer):
            return
        handler = ctx.master.addons.get("proxyserver").connections.get(flow.client_conn.id)
        if not isinstance(handler, FastConnectionHandler) or not _is_alone(handler, layer):
            return
        first = layer.connections.get(flow.server_conn)
        if first is None or not isinstance(layer.connections.get(flow.client_conn), FastHttp1Server):
            return
        http1 = first.context.layers[-1]
        if not isinstance(http1, FastHttp1Client):
            return
        tls = first if isinstance(first, FastTls) else None
        if (tls is not None) != flow.server_conn.tls:
            return
        if handler.lane is None:
            handler.lane = Lane(self._parts, handler, layer)
        handler.lane.learn(Template(lesson, flow.server_conn, tls, http1))


def _is_alone(handler: FastConnectionHandler, layer: FastHttpLayer) -> bool:
    """Return whether a connection's bytes go to this HTTP layer, and not through a tunnel in another one."""
    return handler.in_tunnel or sum(isinstance(each, HttpLayer) for each in layer.context.layers) == 1
