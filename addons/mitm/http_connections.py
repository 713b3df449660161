"""HTTP connections: request heads bounded in size and time, refusals in our own words, interim responses skipped.

Replaces mitmproxy's HTTP/1 layers and HTTP/2 server for safety: they read a head of any size for any time, and quote
in their errors what a peer sent. Subclasses, so that the bound is where the bytes are. They use internals:
tests/daemon/test_limits.py, test_framing.py and test_http2.py fail when those change. Unnecessary once mitmproxy
limits heads ("FIXME: protect against header size DoS") and skips 1xx responses.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import h2.errors
import h2.events
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import (
    ErrorCode,
    ReceiveHttp,
    RequestHeaders,
    RequestProtocolError,
    ResponseEndOfMessage,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Server
from mitmproxy.proxy.layers.http._http2 import Http2Server

from addons.limits import HttpRefusedHook, Limits, ReadAheadHook, Refusal, plain_response, refusal_body
from proxy.wire.hidden_request import could_hide, has_request_line

if TYPE_CHECKING:
    from mitmproxy import http
    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layer import CommandGenerator
    from mitmproxy.proxy.layers.http._events import HttpEvent

HEAD_FRAMES = (0x1, 0x9)  # HEADERS and CONTINUATION
FRAME_HEAD_BYTES = 9
FIELD_BYTES = len(": \r\n")
# Bounds all of a response that is not body: its head, the size line of a chunk, bytes that no request asked for.
ANSWER_HEAD_BYTES = 128 << 10
EXACT_BYTES = 1 << 16  # bodies up to here are searched for a request line, larger ones for its letters alone
_REQUEST_LINE = re.compile(rb"\S+[ \t]+\S+[ \t]+HTTP/\d")
# mitmproxy's messages for these quote the server's bytes, which no detector has scanned. The client gets ours.
_OWN_WORDS = {
    ErrorCode.GENERIC_SERVER_ERROR: "the server closed the connection, or did not answer in well-formed HTTP",
    ErrorCode.RESPONSE_VALIDATION_FAILED: "the server's answer is malformed, or changes to another protocol",
}
# 101 is no interim response: what follows it is another protocol.
_INTERIM = re.compile(rb"HTTP/1\.\d\s+1(?!01)\d\d(?!\d)")


class GuardedHttp1Server(Http1Server):
    """An HTTP/1 server whose request heads are bounded in size and time."""

    def __init__(self, context: Context, limits: Limits) -> None:
        super().__init__(context)
        self._limits = limits
        self._deadline: commands.RequestWakeup | None = None

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.Wakeup):
            if event.command is self._deadline and self.state == self.read_headers:
                yield from self._refuse(408, "head_too_slow", _slow_head(self._limits))
            return
        if isinstance(event, events.HookCompleted):
            if self.buf and self.state == self.read_headers and self.conn.state & ConnectionState.CAN_READ:
                yield from self._read_head(events.DataReceived(self.conn, b""))
            return
        if isinstance(event, events.ConnectionClosed) and self.buf and self.state == self.read_headers:
            yield _refused(self.context, 400, "bad_request" if _REQUEST_LINE.match(bytes(self.buf)) else "not_http")
        yield from super()._handle_event(event)
        if self.buf and isinstance(event, events.DataReceived):
            yield from self._bound_rest()

    def _bound_rest(self) -> CommandGenerator[None]:
        """Close a connection that brings more than can be read yet: pipelined requests, or a chunk without a size."""
        # While a response is awaited, one whole request may come ahead; within a body, only a chunk's size line.
        bound = self._limits.header_bytes + (self._limits.body_bytes if self.state == self.wait else 0)
        if len(self.buf) <= bound or self.state not in (self.wait, self.read_body):
            return
        assert self.stream_id is not None
        if self.state == self.read_body:
            yield from self._refuse_body()
        else:
            yield _refused(self.context, 400, "bad_request")
        yield commands.CloseConnection(self.conn)
        self.state = self.done
        text = "more came than can be read"
        yield ReceiveHttp(RequestProtocolError(self.stream_id, text, ErrorCode.CLIENT_DISCONNECTED))

    def send(self, event: HttpEvent) -> CommandGenerator[None]:
        status = _error_status(event)
        return super().send(event) if status is None or self.response else self._send_error(event, status)

    def _send_error(self, event: HttpEvent, status: int) -> CommandGenerator[None]:
        assert isinstance(event, ResponseProtocolError)
        if not self.conn.state & ConnectionState.CAN_WRITE:
            return
        if event.code is ErrorCode.DESTINATION_UNKNOWN:
            yield _refused(self.context, status, "bad_request")
        yield commands.SendData(self.conn, plain_response(status, _words(event)))
        yield commands.CloseConnection(self.conn)

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        if isinstance(event, events.DataReceived) and not event.data:
            # A pipelined request. The server's connection may not have noted yet that the last response is complete,
            # and would refuse the next request. So it is read after a hook has let other events pass.
            hook = ReadAheadHook(self.context.client)
            hook.blocking = self  # type: ignore[assignment]  # mitmproxy's sign for the layer that gets HookCompleted
            yield hook
        else:
            yield from self._read_head(event)

    def _read_head(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        limit = self._limits.header_bytes
        start = bytes(self.buf)
        if start[:1] in (b"\r", b"\n"):  # RFC 9112, 2.2: skip empty lines before a request
            self.buf += (self.buf.maybe_extract_at_most(len(self.buf)) or b"").lstrip(b"\r\n")
            start = bytes(self.buf)
        if len(start) > limit and _head_end(start) > limit:
            text = f"the request head is larger than {limit} bytes (header_limit)"
            yield from self._refuse(431, "head_too_large", text)
            return
        if b"\n" in start and not _REQUEST_LINE.match(start):
            # No head begins like this: its end is not waited for, which might never come.
            yield from self._refuse_head(start)
            return
        for command in super().read_headers(event):
            # mitmproxy sends here only its own error page, which quotes the head.
            if isinstance(command, commands.SendData) and self.state == self.read_headers:
                yield from self._refuse_head(start)
                return
            yield command
        if self.state != self.read_headers:
            self._deadline = None
        elif self.buf and self._deadline is None:
            self._deadline = commands.RequestWakeup(self._limits.header_seconds)
            yield self._deadline

    def _refuse_head(self, start: bytes) -> CommandGenerator[None]:
        if self.request is not None:
            text = "the Content-Length and Transfer-Encoding headers do not say plainly how long the body is"
            yield from self._refuse(400, "bad_request", text)
        elif _REQUEST_LINE.match(start):
            yield from self._refuse(400, "bad_request", "the request head is not well-formed")
        else:
            yield from self._refuse(400, "not_http", "this is not an HTTP request")

    def read_body(self, event: events.Event) -> CommandGenerator[None]:
        try:
            for command in super().read_body(event):
                broken = isinstance(event, events.DataReceived) and not self.request_done
                if broken and isinstance(command, commands.CloseConnection):
                    yield from self._refuse_body()
                yield command
        except NotImplementedError:  # trailers: no hook sees them, so they could carry anything past the gate
            yield from self._refuse(400, "trailers", "request trailers are not accepted")

    def _refuse_body(self) -> CommandGenerator[None]:
        yield _refused(self.context, 400, "bad_request")
        if self.response is None:
            yield commands.SendData(self.conn, plain_response(400, "the request body's chunks are not well-formed"))

    def _refuse(self, status: int, reason: str, text: str) -> CommandGenerator[None]:
        yield _refused(self.context, status, reason)
        yield commands.SendData(self.conn, plain_response(status, text))
        yield commands.CloseConnection(self.conn)
        self.state = self.done


class GuardedHttp1Client(Http1Client):
    """An HTTP/1 client that waits for the final response, bounds what is not body, and drops trailers.

    A connection ends with a body in which its server might find another request.
    """

    def send(self, event: HttpEvent) -> CommandGenerator[None]:
        if isinstance(event, RequestHeaders) and not event.end_stream and _may_be_left_unread(event.request):
            # A server that answers without reading a body takes it for the next request. One that is told to close
            # looks for none, and nothing sent later can become part of what it would look at.
            request = event.request.copy()
            request.headers["connection"] = "close"
            if not {"content-length", "transfer-encoding"} & {name.lower() for name in request.headers}:
                request.headers["transfer-encoding"] = "chunked"  # from HTTP/2, where a body needs no length
            event = RequestHeaders(event.stream_id, request, end_stream=False)
        return super().send(event)

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        yield from super()._handle_event(event)
        if len(self.buf) > ANSWER_HEAD_BYTES and self.state in (self.read_headers, self.read_body, self.wait):
            yield commands.CloseConnection(self.conn)
            if self.state != self.wait and self.stream_id is not None:
                text = "the server's answer has a head or a chunk without an end"
                yield ReceiveHttp(ResponseProtocolError(self.stream_id, text, ErrorCode.GENERIC_SERVER_ERROR))
            self.state = self.done

    def read_body(self, event: events.Event) -> CommandGenerator[None]:
        try:
            yield from super().read_body(event)
        except NotImplementedError:  # trailers: mitmproxy stops without an end of the response; no hook sees them
            assert self.stream_id is not None
            yield ReceiveHttp(ResponseEndOfMessage(self.stream_id))
            yield from self.mark_done(response=True)

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        if isinstance(event, events.DataReceived) and self.request:
            # mitmproxy would take 100 Continue for the response, and the response for one that nobody asked for.
            while _INTERIM.match(bytes(self.buf)) and self.buf.maybe_extract_lines():
                pass
        return super().read_headers(event)


class GuardedHttp2Server(Http2Server):
    """An HTTP/2 server whose request heads are bounded in size and time."""

    def __init__(self, context: Context, limits: Limits) -> None:
        super().__init__(context)
        self._limits = limits
        self._head_since: float | None = None
        self._deadline: commands.RequestWakeup | None = None
        # Above our own limit, so that a head past that one gets a 431 and not the end of the connection.
        self.h2_conn.decoder.max_header_list_size = 2 * limits.header_bytes + (64 << 10)

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.Wakeup):
            self._deadline = None
            yield from self._watch_head()
            return
        if isinstance(event, ResponseProtocolError) and self._can_answer(event):
            status = _error_status(event)
            assert status is not None
            if event.code is ErrorCode.DESTINATION_UNKNOWN:
                yield _refused(self.context, status, "bad_request")
            yield from self._answer(event.stream_id, status, _words(event))
            return
        yield from super()._handle_event(event)
        if isinstance(event, events.DataReceived) and self._handle_event != self.done:
            yield from self._watch_head()

    def _can_answer(self, event: ResponseProtocolError) -> bool:
        if _error_status(event) is None or not self.is_open_for_us(event.stream_id):
            return False
        return not self.h2_conn.streams[event.stream_id].state_machine.headers_sent

    def _answer(self, stream_id: int, status: int, text: str) -> CommandGenerator[None]:
        headers = [(b":status", b"%d" % status), (b"content-type", b"application/json")]
        self.h2_conn.send_headers(stream_id, headers)
        self.h2_conn.send_data(stream_id, refusal_body(status, text), end_stream=True)
        yield commands.SendData(self.conn, self.h2_conn.data_to_send())

    def handle_h2_event(self, event: h2.events.Event) -> CommandGenerator[bool]:
        limit = self._limits.header_bytes
        if isinstance(event, h2.events.RequestReceived) and _head_size(event) > limit:
            yield _refused(self.context, 431, "head_too_large")
            text = f"the request head is larger than {limit} bytes (header_limit)"
            yield from self._answer(event.stream_id, 431, text)
            if not event.stream_ended:
                self.h2_conn.reset_stream(event.stream_id, h2.errors.ErrorCodes.NO_ERROR)
            return False
        return (yield from super().handle_h2_event(event))

    def protocol_error(
        self, message: str, error_code: int = h2.errors.ErrorCodes.PROTOCOL_ERROR
    ) -> CommandGenerator[None]:
        yield _refused(self.context, 400, "bad_request")
        yield from super().protocol_error(message, error_code)

    def _watch_head(self) -> CommandGenerator[None]:
        """Close a connection on which one head takes too long. One timer at most: a client cannot pile them up."""
        if not self._head_is_unfinished():
            self._head_since = None
            return
        now = time.monotonic()
        if self._head_since is None:
            self._head_since = now
        left = self._head_since + self._limits.header_seconds - now
        if left <= 0:
            yield _refused(self.context, 408, "head_too_slow")
            yield from super().protocol_error(_slow_head(self._limits), h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)
        elif self._deadline is None:
            self._deadline = commands.RequestWakeup(left)
            yield self._deadline

    def _head_is_unfinished(self) -> bool:
        frames = self.h2_conn.incoming_buffer
        waiting = frames._data  # noqa: SLF001  h2 has no public view of an incomplete frame
        if frames._headers_buffer:  # noqa: SLF001
            return True
        return bool(waiting) and (len(waiting) < FRAME_HEAD_BYTES or waiting[3] in HEAD_FRAMES)


def _may_be_left_unread(request: http.Request) -> bool:
    """Return whether a server could take some of this body for a request; a body that streams is not known yet."""
    content = request.data.content
    if content is None or len(content) > EXACT_BYTES:
        return content is None or could_hide(content)
    return has_request_line(content)


def _refused(context: Context, status: int, reason: str) -> HttpRefusedHook:
    address = context.server.address
    server = f"{address[0]}:{address[1]}" if address else "unknown"
    return HttpRefusedHook(Refusal(context.client, server, status, reason))


def _error_status(event: HttpEvent) -> int | None:
    """Return the status of an error's response; None where it gets none."""
    return event.code.http_status_code() if isinstance(event, ResponseProtocolError) else None


def _words(event: ResponseProtocolError) -> str:
    return _OWN_WORDS.get(event.code, event.message)


def _slow_head(limits: Limits) -> str:
    return f"the request head took longer than {limits.header_seconds:g} s (header_timeout)"


def _head_size(event: h2.events.RequestReceived) -> int:
    return sum(len(name) + len(value) + FIELD_BYTES for name, value in event.headers or ())


def _head_end(data: bytes) -> int:
    ends = [at for at in (data.find(b"\r\n\r\n"), data.find(b"\n\n")) if at >= 0]
    return min(ends) if ends else len(data)
