"""Bounds that mitmproxy does not set: head size and deadline, body size and deadline, WebSocket messages.

Subclasses of mitmproxy's own layers, so that the bound is where the bytes are.
They lean on its internals: tests/addons/test_limits.py fails when those change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from mitmproxy import flow as mflow
from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers import websocket
from mitmproxy.proxy.layers.http import (
    ErrorCode,
    HttpErrorHook,
    HttpLayer,
    HTTPMode,
    HttpStream,
    RequestData,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    SendHttp,
    is_h3_alpn,
)
from mitmproxy.proxy.layers.http._http1 import Http1Server
from wsproto import events as wsevents

from proxy.wire.body import could_be_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mitmproxy.connection import Client
    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layer import CommandGenerator

REWRITER = "interlock.rewriter"
SCANNER = "interlock.scanner"
REFUSED = "interlock.refused"
LINGER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of what a connection may bring."""

    header_bytes: int = 64 << 10
    header_seconds: float = 30
    body_bytes: int = 16 << 20
    body_seconds: float = 300
    response_bytes: int = 64 << 20
    message_bytes: int = 16 << 20
    large_uploads: tuple[str, ...] = ()

    def is_large_upload(self, host: str) -> bool:
        """Say whether uploads to `host` may pass the body limit."""
        return any(fnmatchcase(host.lower(), pattern.lower()) for pattern in self.large_uploads)


@dataclass
class ResponseChunk:
    """A piece of a streamed response on its way through a hook; `out` stays None where that fails."""

    flow: http.HTTPFlow
    data: bytes
    last: bool = False
    out: bytes | None = None


@dataclass
class ResponseChunkHook(commands.StartHook):
    """A piece of a response that is rewritten as it streams. Addons set `chunk.out`."""

    chunk: ResponseChunk
    blocking = True


@dataclass
class EventPushed(events.MessageInjected[bytes]):
    """A whole server-sent event of the proxy's own, for a flow whose response is an open, rewritten stream."""


@dataclass
class Refusal:
    """A connection given up before it came to a flow."""

    client: Client
    server: str
    status: int
    reason: str


@dataclass
class HttpRefusedHook(commands.StartHook):
    """A connection was given up before it came to a flow. Addons record it."""

    refusal: Refusal
    blocking = False


def refusal_body(status: int, text: str) -> bytes:
    """Spell the body of an answer to something that is refused for its form."""
    return json.dumps({"error": {"status": status, "message": f"Interlock: {text}"}}).encode()


def plain_response(status: int, text: str, **headers: str) -> bytes:
    """Spell an HTTP/1.1 response for a connection that has no flow yet."""
    body = refusal_body(status, text)
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class GuardedHttp1Server(Http1Server):
    """An HTTP/1 server whose request heads are bounded in size and time."""

    def __init__(self, context: Context, limits: Limits) -> None:
        super().__init__(context)
        self._limits = limits
        self._deadline: commands.RequestWakeup | None = None

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.Wakeup):
            if event.command is self._deadline and self.state == self.read_headers:
                seconds = self._limits.header_seconds
                text = f"the request head took longer than {seconds:g} s (header_timeout)"
                yield from self._refuse(408, "head_too_slow", text)
            return
        yield from super()._handle_event(event)

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        limit = self._limits.header_bytes
        if bytes(self.buf)[:1] in (b"\r", b"\n"):  # empty lines before a request are to be skipped (RFC 9112, 2.2)
            self.buf += (self.buf.maybe_extract_at_most(len(self.buf)) or b"").lstrip(b"\r\n")
        if len(self.buf) > limit and _head_end(bytes(self.buf)) > limit:
            text = f"the request head is larger than {limit} bytes (header_limit)"
            yield from self._refuse(431, "head_too_large", text)
            return
        yield from super().read_headers(event)
        if self.state == self.done and self.request is None:
            yield self._refused(400, "not_http")
        if self.state != self.read_headers:
            self._deadline = None
        elif self.buf and self._deadline is None:
            self._deadline = commands.RequestWakeup(self._limits.header_seconds)
            yield self._deadline

    def read_body(self, event: events.Event) -> CommandGenerator[None]:
        try:
            yield from super().read_body(event)
        except NotImplementedError:  # trailers: nothing here could look into them
            yield from self._refuse(400, "trailers", "request trailers are not accepted")

    def _refuse(self, status: int, reason: str, text: str) -> CommandGenerator[None]:
        yield self._refused(status, reason)
        yield commands.SendData(self.conn, plain_response(status, text))
        yield commands.CloseConnection(self.conn)
        self.state = self.done

    def _refused(self, status: int, reason: str) -> HttpRefusedHook:
        address = self.context.server.address
        server = f"{address[0]}:{address[1]}" if address else "unknown"
        return HttpRefusedHook(Refusal(self.context.client, server, status, reason))


def _head_end(data: bytes) -> int:
    ends = [at for at in (data.find(b"\r\n\r\n"), data.find(b"\n\n")) if at >= 0]
    return min(ends) if ends else len(data)


class GuardedHttpStream(HttpStream):
    """One request and its response, bounded; responses may be rewritten as they stream."""

    def __init__(self, context: Context, stream_id: int, limits: Limits) -> None:
        super().__init__(context, stream_id)
        self._limits = limits
        self._deadline: commands.RequestWakeup | None = None

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.Wakeup):
            if event.command is self._deadline:
                yield from self._overdue()
            return
        if isinstance(event, EventPushed):
            yield from self._push(event.message)
            return
        yield from super()._handle_event(event)

    def _push(self, data: bytes) -> CommandGenerator[None]:
        """Send an event between two of the server's: the rewriter lets only whole ones out, so any time is between."""
        if REWRITER in self.flow.metadata and self.server_state == self.state_stream_response_body:
            yield SendHttp(ResponseData(self.stream_id, data), self.context.client)

    def _overdue(self) -> CommandGenerator[None]:
        if self.client_state == self.state_consume_request_body:
            seconds = self._limits.body_seconds
            text = f"the request body took longer than {seconds:g} s (body_timeout)"
            yield from self._refuse_request(408, "body_too_slow", text)
        elif self.client_state == self.state_errored:
            yield SendHttp(ResponseProtocolError(self.stream_id, "lingered", ErrorCode.KILL), self.context.client)

    def check_body_size(self, request: bool) -> CommandGenerator[bool]:  # noqa: FBT001  mitmproxy's signature
        """Bound what is buffered. Streams are not: they are bounded by whoever reads them."""
        if not request:
            return (yield from self._check_response())
        size = len(self.request_body_buf) or _declared_length(self.flow.request)
        limit = self._limits.body_bytes
        if size <= limit or (not self.request_body_buf and self._limits.is_large_upload(self.flow.request.host)):
            return False
        text = f"the request body is larger than {limit} bytes (body_limit)"
        yield from self._refuse_request(413, "body_too_large", text)
        return True

    def _check_response(self) -> CommandGenerator[bool]:
        limit = self._limits.response_bytes
        if len(self.response_body_buf) <= limit:
            return False
        text = f"the response is larger than {limit} bytes (response_limit)"
        yield from self._end(text, ErrorCode.RESPONSE_TOO_LARGE)
        return True

    def state_consume_request_body(self, event: events.Event) -> CommandGenerator[None]:
        yield from super().state_consume_request_body(event)
        waiting = isinstance(event, RequestData) and self.client_state == self.state_consume_request_body
        if waiting and self._deadline is None and not self._body_complete():
            self._deadline = commands.RequestWakeup(self._limits.body_seconds)
            yield self._deadline

    def _body_complete(self) -> bool:
        return 0 < _declared_length(self.flow.request) <= len(self.request_body_buf)

    def state_stream_request_body(self, event: RequestData | Any) -> CommandGenerator[None]:
        scanner = self.flow.metadata.get(SCANNER)
        if scanner is not None and isinstance(event, RequestData) and not scanner.passes(event.data):
            self.flow.metadata[REFUSED] = "body_too_large"
            yield from self._end("the upload may be an MCP message larger than body_limit", ErrorCode.KILL)
            return
        yield from super().state_stream_request_body(event)

    def state_stream_response_body(self, event: events.Event) -> CommandGenerator[None]:
        if REWRITER not in self.flow.metadata or not isinstance(event, ResponseData | ResponseEndOfMessage):
            yield from super().state_stream_response_body(event)
            return
        last = isinstance(event, ResponseEndOfMessage)
        chunk = ResponseChunk(self.flow, b"" if isinstance(event, ResponseEndOfMessage) else event.data, last)
        yield ResponseChunkHook(chunk)
        if chunk.out is None:
            yield from self._end("the response stream cannot be read", ErrorCode.KILL)
            return
        if chunk.out:
            yield SendHttp(ResponseData(self.stream_id, chunk.out), self.context.client)
        if last:
            yield from self.send_response(already_streamed=True)

    def _refuse_request(self, status: int, reason: str, text: str) -> CommandGenerator[None]:
        """Answer, then read on without keeping anything: a reset would take the answer away."""
        self.flow.metadata[REFUSED] = reason
        self.flow.error = mflow.Error(text)
        yield HttpErrorHook(self.flow)
        response = http.Response.make(status, refusal_body(status, text), {"Content-Type": "application/json"})
        response.headers["Connection"] = "close"
        yield SendHttp(ResponseHeaders(self.stream_id, response), self.context.client)
        yield SendHttp(ResponseData(self.stream_id, response.raw_content or b""), self.context.client)
        yield SendHttp(ResponseEndOfMessage(self.stream_id), self.context.client)
        self.client_state = self.server_state = self.state_errored
        self.flow.live = False
        self._deadline = commands.RequestWakeup(LINGER_SECONDS)
        yield self._deadline

    def flow_done(self) -> CommandGenerator[None]:
        if not self.flow.websocket:
            yield from super().flow_done()
            return
        self.child_layer = GuardedWebsocketLayer(self.context, self.flow, self._limits.message_bytes)
        self._handle_event = self.passthrough  # type: ignore[method-assign]
        yield from self.child_layer.handle_event(events.Start())
        yield SendHttp(ResponseEndOfMessage(self.stream_id), self.context.client)

    def _end(self, text: str, code: ErrorCode) -> CommandGenerator[None]:
        """Give both sides up, and let the addons know."""
        self.flow.error = mflow.Error(text)
        yield HttpErrorHook(self.flow)
        yield SendHttp(ResponseProtocolError(self.stream_id, text, code), self.context.client)
        talking = self.client_state not in (self.state_consume_request_body, self.state_wait_for_request_headers)
        if talking and self.context.server.connected:
            yield SendHttp(RequestProtocolError(self.stream_id, text, ErrorCode.CANCEL), self.context.server)
        self.client_state = self.server_state = self.state_errored
        self.flow.live = False


def _declared_length(request: http.Request) -> int:
    value = request.headers.get("content-length", "0")
    return int(value) if value.isascii() and value.isdigit() else 0


class GuardedWebsocketLayer(websocket.WebsocketLayer):
    """A WebSocket whose messages are bounded before they are whole."""

    def __init__(self, context: Context, flow: http.HTTPFlow, limit: int) -> None:
        super().__init__(context, flow)
        self._limit = limit

    def start(self, event: events.Event) -> CommandGenerator[None]:
        yield from super().start(event)
        self.client_ws.events = partial(_without_hidden_text, self.client_ws.events)

    _handle_event = start

    def relay_messages(self, event: events.Event) -> CommandGenerator[None]:
        yield from super().relay_messages(event)
        for side in (self.client_ws, self.server_ws):
            if sum(map(len, side.frame_buf)) > self._limit:
                yield commands.Log("a WebSocket message is larger than event_limit")
                yield commands.CloseConnection(self.context.server)
                yield commands.CloseConnection(self.context.client)
                self._handle_event = self.done  # type: ignore[method-assign]
                return


def _without_hidden_text(read: Callable[[], Iterator[wsevents.Event]]) -> Iterator[wsevents.Event]:
    """Give a client's frames; control frames, which no hook sees, without a payload that could be a message."""
    for event in read():
        if isinstance(event, wsevents.Ping | wsevents.Pong) and could_be_json(bytes(event.payload)):
            yield replace(event, payload=b"")
        else:
            yield event


class GuardedHttpLayer(HttpLayer):
    """mitmproxy's HTTP layer with bounded parts."""

    def __init__(self, context: Context, mode: HTTPMode, limits: Limits) -> None:
        super().__init__(context, mode)
        self._limits = limits

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        alpn = self.context.client.alpn
        if isinstance(event, events.Start) and alpn != b"h2" and not is_h3_alpn(alpn):
            self.connections[self.context.client] = GuardedHttp1Server(self.context.fork(), self._limits)
        if isinstance(event, EventPushed):
            for stream in self._streams_for(event.flow):
                yield from self.event_to_child(stream, event)
            return
        yield from super()._handle_event(event)

    def _streams_for(self, flow: mflow.Flow) -> list[HttpStream]:
        """Give the flow's stream, or the tunnels it may be in."""
        streams = list(self.streams.values())
        mine = [stream for stream in streams if getattr(stream, "flow", None) is flow]
        return mine or [s for s in streams if s.child_layer and not isinstance(s.child_layer, GuardedWebsocketLayer)]

    def make_stream(self, stream_id: int) -> CommandGenerator[None]:
        self.streams[stream_id] = GuardedHttpStream(self.context.fork(), stream_id, self._limits)
        yield from self.event_to_child(self.streams[stream_id], events.Start())
