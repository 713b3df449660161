"""The HTTP layer: carries what is read on one connection to its stream, and what a stream sends to a connection.

A subclass of mitmproxy's own with bounded parts; what it does for each command is the same, found by its kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import (
    DropStream,
    GetHttpConnection,
    HttpClient,
    HttpLayer,
    HTTPMode,
    HttpStream,
    ReceiveHttp,
    RegisterHttpConnection,
    RequestHeaders,
    SendHttp,
    is_h3_alpn,
)

from addons.limits import BodyOverdue, EventPushed, Limits
from addons.mitm.fast.http1_batch import EventBatch, QuickHttp1, together
from addons.mitm.fast.sync_hooks import is_done
from addons.mitm.http_connections import GuardedHttp1Server, GuardedHttp2Server
from addons.mitm.http_stream import GuardedHttpStream, GuardedWebsocketLayer

if TYPE_CHECKING:
    from mitmproxy import flow as mflow
    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layer import CommandGenerator, Layer
    from mitmproxy.proxy.layers.http._base import HttpEvent


class GuardedHttpLayer(HttpLayer):
    """mitmproxy's HTTP layer with bounded parts."""

    def __init__(self, context: Context, mode: HTTPMode, limits: Limits) -> None:
        super().__init__(context, mode)
        self._limits = limits

    def handle_event(self, event: events.Event) -> CommandGenerator[None]:
        """Take an event. This layer never waits: what blocks are commands of those inside it."""
        if isinstance(event, events.CommandCompleted):
            return self.event_to_child(self.command_sources.pop(event.command), event)
        if isinstance(event, events.DataReceived) and event.connection in self.connections:
            return self.event_to_child(self.connections[event.connection], event)
        return self._handle_event(event)

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        alpn = self.context.client.alpn
        if isinstance(event, events.Start) and alpn != b"h2" and not is_h3_alpn(alpn):
            self.connections[self.context.client] = GuardedHttp1Server(self.context.fork(), self._limits)
        elif isinstance(event, events.Start) and alpn == b"h2":
            self.connections[self.context.client] = GuardedHttp2Server(self.context.fork(), self._limits)
        if isinstance(event, EventPushed | BodyOverdue):
            for stream in self._streams_for(event.flow):
                yield from self.event_to_child(stream, event)
            return
        yield from super()._handle_event(event)

    def event_to_child(self, child: Layer, event: events.Event) -> CommandGenerator[None]:
        """Return a layer inside an event, and carry out or hand on its commands."""
        command: Any
        to: Any = None
        leaving: list[HttpEvent] = []
        for command in child.handle_event(event):
            kind = type(command)
            if kind is SendHttp:
                if leaving and command.connection is not to:
                    yield from self.event_to_child(self.connections[to], together(leaving))
                    leaving = []
                to = command.connection
                leaving.append(command.event)
                continue
            # Hooks take no time; of one that does the child waits for the end, so it is its last command for now.
            if leaving and not isinstance(command, commands.StartHook):
                yield from self.event_to_child(self.connections[to], together(leaving))
                leaving = []
            if kind is ReceiveHttp:
                yield from self._receive(command.event)
            elif kind is commands.SendData:
                yield command
            elif kind is DropStream:
                self.streams.pop(command.stream_id, None)
            elif isinstance(command, commands.StartHook):
                yield from self._ask(command, child)
            else:
                yield from self._carry_out(command, child)
        if leaving:
            yield from self.event_to_child(self.connections[to], together(leaving))

    def _receive(self, event: HttpEvent) -> CommandGenerator[None]:
        """Return a stream what was read for it; one that is dropped may still be sent things."""
        first = event.parts[0] if isinstance(event, EventBatch) else event
        if isinstance(first, RequestHeaders):
            yield from self.make_stream(event.stream_id)
        stream = self.streams.get(event.stream_id)
        if stream is not None:
            yield from self.event_to_child(stream, event)

    def _ask(self, hook: commands.StartHook, child: Layer) -> CommandGenerator[None]:
        """Hand a hook on; remember who is to be told when it is done, unless it is done already."""
        if is_done(hook):
            yield hook
            return
        self.command_sources[hook] = child
        yield hook
        if is_done(hook):
            del self.command_sources[hook]

    def _carry_out(self, command: commands.Command, child: Layer) -> CommandGenerator[None]:
        if command.blocking or isinstance(command, commands.RequestWakeup):
            self.command_sources[command] = child
        if isinstance(command, GetHttpConnection):
            yield from self.get_connection(command)
        elif isinstance(command, RegisterHttpConnection):
            yield from self.register_connection(command)
        else:
            if isinstance(command, commands.OpenConnection):
                self.connections[command.connection] = child
            yield command

    def _streams_for(self, flow: mflow.Flow) -> list[HttpStream]:
        """Return the flow's stream, or the tunnels it may be in."""
        streams = list(self.streams.values())
        mine = [stream for stream in streams if getattr(stream, "flow", None) is flow]
        if mine:
            return [stream for stream in mine if stream.child_layer is None]
        return [s for s in streams if s.child_layer and not isinstance(s.child_layer, GuardedWebsocketLayer)]

    def make_stream(self, stream_id: int) -> CommandGenerator[None]:
        stream = self.streams[stream_id] = GuardedHttpStream(self.context.fork(), stream_id, self._limits)
        yield from stream.handle_event(events.Start())


class QuickHttpClient(HttpClient):
    """Opens a connection to a server; from then on, the layer that speaks HTTP on it takes what comes."""

    def handle_event(self, event: events.Event) -> CommandGenerator[None]:
        """Take an event."""
        child: Layer | None = self.__dict__.get("child_layer")
        if child is None or self._paused:
            return super().handle_event(event)
        if isinstance(event, EventBatch) and not isinstance(child, QuickHttp1):
            return _one_by_one(child, event)
        return child.handle_event(event)


def _one_by_one(child: Layer, event: EventBatch) -> CommandGenerator[None]:
    for part in event.parts:
        yield from child.handle_event(part)
