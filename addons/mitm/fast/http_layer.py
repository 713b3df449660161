"""The HTTP layer with fewer steps for each command.

mitmproxy's layer tests every command for eight kinds in turn and stops for none of its own, yet every event passes the
machinery for stopping. Here the frequent kinds come first, and events go straight to the layer inside.

Gain: without it, a call takes 5.3 % ± 2.2 % more processor time.
Unnecessary once mitmproxy's HttpLayer dispatches commands by type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import (
    DropStream,
    GetHttpConnection,
    ReceiveHttp,
    RegisterHttpConnection,
    RequestHeaders,
    SendHttp,
)

from addons.mitm.fast.sync_hooks import SyncHooks, is_done
from addons.mitm.http_layer import GuardedHttpLayer
from addons.mitm.http_stream import GuardedHttpStream

if TYPE_CHECKING:
    from mitmproxy.proxy.layer import CommandGenerator, Layer
    from mitmproxy.proxy.layers.http._base import HttpEvent


class FastHttpStream(SyncHooks, GuardedHttpStream):
    """One request and its response. SyncHooks changes how it stops at a hook; every bound is GuardedHttpStream's."""


class FastHttpLayer(GuardedHttpLayer):
    """The bounded HTTP layer, which never waits itself: the commands that block are those of the layers inside it."""

    stream = FastHttpStream

    def handle_event(self, event: events.Event) -> CommandGenerator[None]:
        """Pass an event to the layer inside that it is for."""
        if isinstance(event, events.CommandCompleted):
            return self.event_to_child(self.command_sources.pop(event.command), event)
        if isinstance(event, events.DataReceived) and event.connection in self.connections:
            return self.event_to_child(self.connections[event.connection], event)
        return self._handle_event(event)

    def event_to_child(self, child: Layer, event: events.Event) -> CommandGenerator[None]:
        """Pass an event to a layer inside, and carry out or hand on its commands."""
        command: Any
        for command in child.handle_event(event):
            kind = type(command)
            if kind is SendHttp:
                yield from self.event_to_child(self.connections[command.connection], command.event)
            elif kind is ReceiveHttp:
                yield from self._receive(command.event)
            elif kind is commands.SendData:
                yield command
            elif kind is DropStream:
                self.streams.pop(command.stream_id, None)
            elif isinstance(command, commands.StartHook):
                yield from self._start_hook(command, child)
            else:
                yield from self._carry_out(command, child)

    def _receive(self, event: HttpEvent) -> CommandGenerator[None]:
        if isinstance(event, RequestHeaders):
            yield from self.make_stream(event.stream_id)
        stream = self.streams.get(event.stream_id)
        if stream is not None:  # as in mitmproxy: a dropped stream may still be sent things
            yield from self.event_to_child(stream, event)

    def _start_hook(self, hook: commands.StartHook, child: Layer) -> CommandGenerator[None]:
        if is_done(hook):
            yield hook
            return
        # Before the hook is out: where it ends at once, nothing will look for the layer that waits.
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
