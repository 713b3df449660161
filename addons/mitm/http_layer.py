"""mitmproxy's HTTP layer, made of the bounded parts in http_connections.py and http_stream.py.

For safety: the layer names its parts itself, so bounds can be put in by a subclass alone. Unnecessary once
mitmproxy lets addons choose these classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mitmproxy.proxy import events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode, HttpStream

from addons.limits import BodyOverdue, EventPushed, Limits
from addons.mitm.http_connections import GuardedHttp1Server, GuardedHttp2Server
from addons.mitm.http_stream import GuardedHttpStream
from addons.mitm.websocket import GuardedWebsocketLayer

if TYPE_CHECKING:
    from mitmproxy import flow as mflow
    from mitmproxy.proxy.layer import CommandGenerator


class GuardedHttpLayer(HttpLayer):
    """mitmproxy's HTTP layer with bounded parts."""

    http1_server = GuardedHttp1Server
    http2_server = GuardedHttp2Server
    stream = GuardedHttpStream

    def __init__(self, context: Context, mode: HTTPMode, limits: Limits) -> None:
        super().__init__(context, mode)
        self._limits = limits

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.Start):
            # In place of mitmproxy's own, which would make an unbounded one as well.
            client = self.context.client
            made = self.http2_server if client.alpn == b"h2" else self.http1_server
            side = self.connections[client] = made(fork(self.context), self._limits)
            yield from self.event_to_child(side, event)
        elif isinstance(event, EventPushed | BodyOverdue):
            for stream in self._streams_for(event.flow):
                yield from self.event_to_child(stream, event)
        else:
            yield from super()._handle_event(event)

    def _streams_for(self, flow: mflow.Flow) -> list[HttpStream]:
        """Return the flow's stream, or the tunnels it may be in."""
        streams = list(self.streams.values())
        mine = [stream for stream in streams if getattr(stream, "flow", None) is flow]
        if mine:
            return [stream for stream in mine if stream.child_layer is None]
        return [s for s in streams if s.child_layer and not isinstance(s.child_layer, GuardedWebsocketLayer)]

    def make_stream(self, stream_id: int) -> CommandGenerator[None]:
        stream = self.streams[stream_id] = self.stream(fork(self.context), stream_id, self._limits)
        yield from self.event_to_child(stream, events.Start())


def fork(context: Context) -> Context:
    """Return a copy of a context with its own list of layers.

    `Context.fork` creates a Server with an id and twenty checked fields for it, and replaces it by the context's own.
    """
    made = Context.__new__(Context)
    made.client, made.server, made.options = context.client, context.server, context.options
    made.layers = context.layers.copy()
    return made
