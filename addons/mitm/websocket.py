"""One WebSocket: messages bounded before they are complete, and control frames without text.

Replaces mitmproxy's WebsocketLayer for safety: it bounds no message, and passes control frames unseen. A subclass, so
that the bound is where the bytes are. It uses internals: tests/daemon/test_websocket.py fails when those change.
Unnecessary once mitmproxy has hooks for control frames.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mitmproxy import flow as mflow
from mitmproxy.proxy import commands
from mitmproxy.proxy.layers import websocket
from mitmproxy.proxy.layers.http import HttpErrorHook
from wsproto import events as wsevents
from wsproto.connection import ConnectionState

from addons.flow_state import state_of
from proxy.wire.body import could_be_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mitmproxy import http
    from mitmproxy.proxy import events
    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layer import CommandGenerator

# Bytes of a control frame that may go where no secrets may: enough for a client to recognise its own ping.
MAX_CONTROL = 16


class GuardedWebsocketLayer(websocket.WebsocketLayer):
    """A WebSocket whose messages are bounded before they are complete, and whose control frames carry no text."""

    def __init__(self, context: Context, flow: http.HTTPFlow, limit: int) -> None:
        super().__init__(context, flow)
        self._limit = limit
        self._is_broken = False

    def start(self, event: events.Event) -> CommandGenerator[None]:
        yield from super().start(event)
        self.client_ws.events = partial(self._without_hidden_text, self.client_ws.events)
        self.server_ws.events = partial(self._noting_breaches, self.server_ws, self.server_ws.events)

    _handle_event = start

    def relay_messages(self, event: events.Event) -> CommandGenerator[None]:
        yield from super().relay_messages(event)
        if self._is_broken:
            self._is_broken = False
            state_of(self.flow).refused = "bad_frame"
            self.flow.error = mflow.Error("a WebSocket frame is malformed")
            yield HttpErrorHook(self.flow)
            return
        for side in (self.client_ws, self.server_ws):
            if sum(map(len, side.frame_buf)) > self._limit:
                state_of(self.flow).refused = "event_too_large"
                self.flow.error = mflow.Error("a WebSocket message is larger than event_limit")
                yield HttpErrorHook(self.flow)
                yield commands.CloseConnection(self.context.server)
                yield commands.CloseConnection(self.context.client)
                self._handle_event = self.done  # type: ignore[method-assign]
                return

    def _without_hidden_text(self, read: Callable[[], Iterator[wsevents.Event]]) -> Iterator[wsevents.Event]:
        """Return a client's frames. No hook sees control frames, so a payload that could be a message is cut out."""
        for event in self._noting_breaches(self.client_ws, read):
            if isinstance(event, wsevents.Ping | wsevents.Pong) and self._is_hidden(bytes(event.payload)):
                yield replace(event, payload=b"")
            elif isinstance(event, wsevents.CloseConnection) and self._is_hidden((event.reason or "").encode()):
                yield replace(event, reason="")
            else:
                yield event

    def _noting_breaches(
        self, side: websocket.WebsocketConnection, read: Callable[[], Iterator[wsevents.Event]]
    ) -> Iterator[wsevents.Event]:
        """Return one side's frames. Where one breaks the protocol, wsproto reports an end that nobody asked for."""
        for event in read():
            if isinstance(event, wsevents.CloseConnection) and side.state is ConnectionState.OPEN:
                self._is_broken = True
            yield event if side is self.client_ws else self._without_values(event)

    def _without_values(self, event: wsevents.Event) -> wsevents.Event:
        """Return a server's frame; a control frame that holds a credential's value without its text."""
        reflections = state_of(self.flow).reflections
        mask = reflections.current() if reflections is not None else None
        if mask is None:
            return event
        if isinstance(event, wsevents.Ping | wsevents.Pong):
            payload = bytes(event.payload)
            return event if mask.apply(payload) is payload else replace(event, payload=b"")
        if isinstance(event, wsevents.CloseConnection):
            reason = (event.reason or "").encode()
            return event if mask.apply(reason) is reason else replace(event, reason="")
        return event

    def _is_hidden(self, payload: bytes) -> bool:
        """Return whether a payload could be a message, or a secret on its way to where none may go."""
        guarded = any(redaction.action == "deny" for redaction in state_of(self.flow).egress.redactions)
        return could_be_json(payload) or (guarded and len(payload) > MAX_CONTROL)
