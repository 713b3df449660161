"""One request and its response: bodies bounded in size and time.

Replaces mitmproxy's HttpStream for safety and function: it bounds no time, and streams a body without a hook for its
parts. A subclass, so that the bound is where the bytes are. It uses internals: tests/daemon/test_limits.py fails when
those change. Unnecessary once mitmproxy has hooks for parts of bodies, and limits by time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import structlog
from mitmproxy import flow as mflow
from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import (
    DropStream,
    ErrorCode,
    HttpErrorHook,
    HttpRequestHeadersHook,
    HttpResponseHeadersHook,
    HttpResponseHook,
    HttpStream,
    RequestData,
    RequestEndOfMessage,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
    ResponseTrailers,
    SendHttp,
    validate_request,
)
from wsproto.handshake import WEBSOCKET_VERSION

from addons import answer_masking
from addons.credential_filling import fill_in, take_back
from addons.flow_state import state_of
from addons.held_response import begun_head
from addons.limits import (
    BodyOverdue,
    EventPushed,
    HeldPiece,
    HeldPieceHook,
    LargeUploadHook,
    Limits,
    ResponseChunk,
    ResponseChunkHook,
    refusal_body,
)
from addons.mitm.websocket import GuardedWebsocketLayer
from proxy.gate.plain_response import HELD

if TYPE_CHECKING:
    from collections.abc import Callable

    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layer import CommandGenerator

    from proxy.gate.outbound_scan import UploadWatch
    from proxy.gate.plain_response import PageWatch
    from proxy.gate.reflections import AnswerMask

log = structlog.get_logger("interlock.http")

LINGER_SECONDS = 5.0
UNTOLD = "the server could not be reached, or its answer is not well-formed"
LINE_BREAKS = re.compile(rb"[\r\n\0]")


class GuardedHttpStream(HttpStream):
    """One request and its response, bounded; responses may be rewritten as they stream."""

    def __init__(self, context: Context, stream_id: int, limits: Limits) -> None:
        super().__init__(context, stream_id)
        self._limits = limits
        self._lingering: commands.RequestWakeup | None = None

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        is_own = isinstance(event, events.Wakeup | BodyOverdue | EventPushed)
        return self._handle_own(event) if is_own else super()._handle_event(event)

    def _handle_own(self, event: events.Event) -> CommandGenerator[None]:
        """Handle what mitmproxy's streams do not know."""
        if isinstance(event, events.Wakeup):
            if event.command is self._lingering:
                # A refused client that still sends after its time is cut off.
                yield SendHttp(ResponseProtocolError(self.stream_id, "lingered", ErrorCode.KILL), self.context.client)
                yield DropStream(self.stream_id)
        elif isinstance(event, BodyOverdue):
            if self.client_state == self.state_consume_request_body:
                text = f"the request body took longer than {self._limits.body_seconds:g} s (body_timeout)"
                yield from self._refuse_request(408, "body_too_slow", text)
        # The rewriter passes only whole events on, so at any time this one falls between two of the server's.
        elif (
            isinstance(event, EventPushed)
            and state_of(self.flow).rewriter is not None
            and self.server_state == self.state_stream_response_body
        ):
            yield SendHttp(ResponseData(self.stream_id, event.message), self.context.client)

    def check_invalid(self, request: bool) -> CommandGenerator[bool]:  # noqa: FBT001  mitmproxy's signature
        """Refuse a request that servers may read differently."""
        if not request:
            return (yield from super().check_invalid(request))
        # While a hook waits, this is where it can see that the client has gone.
        state_of(self.flow).queued = self._paused_event_queue
        problem = validate_request(self.mode, self.flow.request, validate_inbound_headers=True)
        problem = problem or _broken_line(self.flow.request) or self._odd_version()
        if problem is None:
            return False
        yield HttpRequestHeadersHook(self.flow)  # so that the record has who is calling
        yield from self._refuse_request(400, "bad_request", _in_own_words(problem))
        return True

    def _odd_version(self) -> str | None:
        # HTTP/0.9 and HTTP/2.0 in an HTTP/1 request line: servers differ on where such a request ends.
        version = self.flow.request.http_version
        known = ("HTTP/2.0",) if self.context.client.alpn == b"h2" else ("HTTP/1.0", "HTTP/1.1")
        return None if version in known else f"{version} is not a version that is spoken here"

    def check_body_size(self, request: bool) -> CommandGenerator[bool]:  # noqa: FBT001  mitmproxy's signature
        """Bound what is buffered. A stream is bounded by what reads it."""
        if not request:
            return (yield from self._check_response())
        # By the declared length first, so that a large body is refused before it is sent.
        size = len(self.request_body_buf) or _declared_length(self.flow.request)
        limit = self._limits.body_bytes
        may_stream = self._limits.is_large_upload(self.flow.request.host)
        if size <= limit or (may_stream and not self.request_body_buf):
            return False
        if may_stream and (yield from self._stream_rest()):
            return False
        text = f"the request body is larger than {limit} bytes (body_limit)"
        yield from self._refuse_request(413, "body_too_large", text)
        return True

    def _stream_rest(self) -> CommandGenerator[bool]:
        """Stream a body that turned out to be large, with what was read of it first; return whether it may."""
        if self.flow.response is not None or _declared_length(self.flow.request):
            return False  # refused by its head
        yield LargeUploadHook(self.flow)
        if not self.flow.request.stream:
            return False
        read = bytes(self.request_body_buf)
        self.request_body_buf.clear()
        yield from self.start_request_stream()
        if self.client_state == self.state_stream_request_body:
            yield from self.state_stream_request_body(RequestData(self.stream_id, read))
        return True

    def _check_response(self) -> CommandGenerator[bool]:
        if state_of(self.flow).page is not None and len(self.response_body_buf) > HELD:
            yield from self._stream_page()
            return False
        limit = self._limits.response_bytes
        if len(self.response_body_buf) <= limit:
            return False
        text = f"the response is larger than {limit} bytes (response_limit)"
        yield from self._end(text, ErrorCode.RESPONSE_TOO_LARGE)
        return True

    def make_server_connection(self) -> CommandGenerator[bool]:
        """Open the connection to the server; first wait for people, where the call has to."""
        held = state_of(self.flow).held_response
        if held is not None and not (yield from self._keep_waiting()):
            return False
        connected = yield from super().make_server_connection()
        if connected:
            fill_in(self.flow)
        return connected

    def _keep_waiting(self) -> CommandGenerator[bool]:
        """Begin the response, and send signs of life until people have decided; return whether the call is made."""
        yield SendHttp(ResponseHeaders(self.stream_id, begun_head(self.flow.request)), self.context.client)
        decided = False
        while not decided:
            piece = HeldPiece(self.flow)
            yield HeldPieceHook(piece)
            if (yield from self.check_killed(True)):
                return False
            if piece.data:
                yield SendHttp(ResponseData(self.stream_id, piece.data), self.context.client)
            decided = piece.is_decided
            if piece.data is None:
                break
        if decided and piece.makes_call and self.flow.response is None:
            return True
        if self.flow.response is None:
            yield from self._end("a call that waits for people is neither answered nor made", ErrorCode.KILL)
        else:
            yield HttpResponseHeadersHook(self.flow)
            yield from self.send_response()
        return False

    def start_response_stream(self) -> CommandGenerator[None]:
        """Send the head of a response that streams, unless the client has one already."""
        answer_masking.unframe(self.flow)
        if state_of(self.flow).held_response is None:
            yield from super().start_response_stream()
        elif state_of(self.flow).rewriter is None:
            yield from self._end("the server streams something else than events", ErrorCode.KILL)
        else:
            self.server_state = self.state_stream_response_body

    def send_response(self, already_streamed: bool = False) -> CommandGenerator[None]:  # noqa: FBT001, FBT002  as above
        """Send a response that was read whole; as an event, where the response to the client is a stream."""
        held = state_of(self.flow).held_response
        if not already_streamed:
            answer_masking.settle(self.flow)
        if held is None or already_streamed:
            yield from super().send_response(already_streamed)
            return
        yield HttpResponseHook(self.flow)
        self.server_state = self.state_done
        if (yield from self.check_killed(False)):
            return
        assert self.flow.response is not None
        yield SendHttp(ResponseData(self.stream_id, held.answer(self.flow.response)), self.context.client)
        yield from self.flow_done()

    def handle_protocol_error(self, event: RequestProtocolError | ResponseProtocolError) -> CommandGenerator[None]:
        """End a flow that broke. A client whose response has begun gets an event that says so."""
        take_back(self.flow)
        if isinstance(event, ResponseProtocolError) and self._quotes_value(event.message):
            event = ResponseProtocolError(event.stream_id, UNTOLD, event.code)
        held = state_of(self.flow).held_response
        waits = self.server_state in (self.state_wait_for_response_headers, self.state_consume_response_body)
        if held is None or not waits or not isinstance(event, ResponseProtocolError):
            yield from super().handle_protocol_error(event)
            return
        self.flow.error = mflow.Error(event.message)
        yield HttpErrorHook(self.flow)
        if not (yield from self.check_killed(False)):
            last = held.failed(None, "the server could not be reached, or broke off")
            yield SendHttp(ResponseData(self.stream_id, last), self.context.client)
            yield SendHttp(ResponseEndOfMessage(self.stream_id), self.context.client)
            self.client_state = self.server_state = self.state_errored
            self.flow.live = False
            yield DropStream(self.stream_id)

    def _quotes_value(self, text: str) -> bool:
        """Return whether the message of an error may quote a credential: what a server sent, in part or whole."""
        state = state_of(self.flow)
        if state.filling is not None and self.flow.server_conn.timestamp_tcp_setup is not None:
            return True
        mask = state.reflections.current() if state.reflections is not None else None
        data = text.encode()
        return mask is not None and mask.apply(data) is not data

    def _stream_page(self) -> CommandGenerator[None]:
        """Stream a page that turned out to be too large to be held, with what was read of it first."""
        assert self.flow.response is not None
        read = bytes(self.response_body_buf)
        self.response_body_buf.clear()
        self.flow.response.stream = True
        yield from self.start_response_stream()
        yield from self._stream_response_body(ResponseData(self.stream_id, read))  # it is masked

    def _watched_page(self, page: PageWatch, event: events.Event) -> CommandGenerator[None]:
        """Pass what holds no text that may not pass; the last bytes wait for what follows."""
        passed: bytes | None = b""
        if isinstance(event, ResponseData):
            passed = page.feed(event.data)
        elif isinstance(event, ResponseEndOfMessage):
            passed = page.close()
        if passed is None:
            state_of(self.flow).refused = "injected_instructions"
            yield from self._end("the response holds text that policy does not let pass", ErrorCode.KILL)
            return
        if passed:
            if (labels := state_of(self.flow).page_labels) is not None:
                labels.feed(passed)
            yield SendHttp(ResponseData(self.stream_id, passed), self.context.client)
        if not isinstance(event, ResponseData):
            yield from super().state_stream_response_body(event)

    def state_wait_for_response_headers(self, event: ResponseHeaders) -> CommandGenerator[None]:
        take_back(self.flow)
        # After any other 1xx mitmproxy would pass the bytes of both sides on as they are, without a hook.
        if 100 <= event.response.status_code < 200 and not self._opens_websocket(event.response):
            state_of(self.flow).refused = "protocol_change"
            yield from self._end("the server changes to another protocol", ErrorCode.RESPONSE_VALIDATION_FAILED)
            return
        yield from super().state_wait_for_response_headers(event)

    def _opens_websocket(self, response: http.Response) -> bool:
        """Return whether mitmproxy will read what follows `response` as a WebSocket."""
        asked = self.flow.request.headers.get("sec-websocket-version", "").encode() == WEBSOCKET_VERSION
        return asked and response.status_code == 101 and response.headers.get("upgrade", "").lower() == "websocket"

    def state_stream_request_body(self, event: RequestData | Any) -> CommandGenerator[None]:
        scanner = state_of(self.flow).scanner
        if scanner is not None and isinstance(event, RequestData) and not scanner.passes(event.data):
            state_of(self.flow).refused = "body_too_large"
            yield from self._end("the upload may be an MCP message larger than body_limit", ErrorCode.KILL)
            return
        watch = state_of(self.flow).watch
        if watch is not None:
            yield from self._watched(watch, event)
        else:
            yield from super().state_stream_request_body(event)

    def _watched(self, watch: UploadWatch, event: RequestData | Any) -> CommandGenerator[None]:
        """Forward what holds no secret. The last bytes wait for what follows, since a secret may be cut in two."""
        passed: bytes | None = b""
        scanner = state_of(self.flow).scanner
        if isinstance(event, RequestData):
            passed = watch.feed(event.data)
            if passed is not None and scanner is not None and scanner.is_between_messages:
                passed += watch.close()  # the server may have to answer this message before another one comes
        elif isinstance(event, RequestEndOfMessage):
            passed = watch.close()
        if passed is None:
            text = "the upload holds a secret that policy does not let pass, or cannot be scanned"
            yield SendHttp(RequestProtocolError(self.stream_id, text, ErrorCode.CANCEL), self.context.server)
            yield from self._refuse_request(403, None, text)
            return
        if passed:
            yield from super().state_stream_request_body(RequestData(self.stream_id, passed))
        if not isinstance(event, RequestData):
            yield from super().state_stream_request_body(event)

    def state_consume_response_body(self, event: events.Event) -> CommandGenerator[None]:
        yield from self._masked(event, super().state_consume_response_body)

    def state_stream_response_body(self, event: events.Event) -> CommandGenerator[None]:
        yield from self._masked(event, self._stream_response_body)

    def _masked(self, event: events.Event, handle: Callable[[Any], CommandGenerator[None]]) -> CommandGenerator[None]:
        """Handle a part of a response without the values of credentials: before anything else reads it."""
        mask = state_of(self.flow).mask
        if mask is None:
            yield from handle(event)
            return
        try:
            events_left = _parts(mask, event)
        except Exception as error:
            log.exception("an answer cannot be masked", error=type(error).__name__)
            yield from self._end("the response cannot be read", ErrorCode.KILL)
            return
        # Its state may change with a part of it: from a response that is read whole to one that streams.
        for i, each in enumerate(events_left):
            yield from handle(each) if not i else self.server_state(each)

    def _stream_response_body(self, event: events.Event) -> CommandGenerator[None]:
        page = state_of(self.flow).page
        if page is not None:
            yield from self._watched_page(page, event)
            return
        if state_of(self.flow).rewriter is None or not isinstance(event, ResponseData):
            yield from super().state_stream_response_body(event)
            return
        chunk = ResponseChunk(self.flow, event.data)
        yield ResponseChunkHook(chunk)
        if chunk.out:
            yield SendHttp(ResponseData(self.stream_id, b"".join(chunk.out)), self.context.client)
        if not chunk.is_read:
            yield from self._end("the response stream cannot be read", ErrorCode.KILL)

    def _refuse_request(self, status: int, reason: str | None, text: str) -> CommandGenerator[None]:
        """Answer, then read and drop what the client still sends. Without a `reason`, an addon records it."""
        if reason is not None:
            state_of(self.flow).refused = reason
        self.flow.error = mflow.Error(text)
        yield HttpErrorHook(self.flow)
        response = http.Response.make(status, refusal_body(status, text), {"Content-Type": "application/json"})
        response.headers["Connection"] = "close"
        yield SendHttp(ResponseHeaders(self.stream_id, response), self.context.client)
        yield SendHttp(ResponseData(self.stream_id, response.raw_content or b""), self.context.client)
        yield SendHttp(ResponseEndOfMessage(self.stream_id), self.context.client)
        self.client_state = self.server_state = self.state_errored
        self.flow.live = False
        # Closing while the client sends would reset the connection, and the reset may overtake the answer.
        self._lingering = commands.RequestWakeup(LINGER_SECONDS)
        yield self._lingering

    def flow_done(self) -> CommandGenerator[None]:
        if not self.flow.websocket:
            yield from super().flow_done()
            # Both refer back to this stream. As cycles, flow and bodies would wait for the garbage collector.
            self.context.layers.remove(self)
            self.client_state = self.server_state = _over
            return
        self.child_layer = GuardedWebsocketLayer(self.context, self.flow, self._limits.message_bytes)
        self._handle_event = self.passthrough  # type: ignore[method-assign]
        yield from self.child_layer.handle_event(events.Start())
        yield SendHttp(ResponseEndOfMessage(self.stream_id), self.context.client)

    def _end(self, text: str, code: ErrorCode) -> CommandGenerator[None]:
        """End both sides with an error."""
        self.flow.error = mflow.Error(text)
        yield HttpErrorHook(self.flow)
        yield SendHttp(ResponseProtocolError(self.stream_id, text, code), self.context.client)
        talking = self.client_state not in (self.state_consume_request_body, self.state_wait_for_request_headers)
        if talking and self.context.server.connected:
            yield SendHttp(RequestProtocolError(self.stream_id, text, ErrorCode.CANCEL), self.context.server)
        self.client_state = self.server_state = self.state_errored
        self.flow.live = False
        yield DropStream(self.stream_id)


def _parts(mask: AnswerMask, event: events.Event) -> list[events.Event]:
    """Return an event of a response masked, as the events that are left to handle. May raise."""
    if isinstance(event, ResponseData):
        data = mask.feed(event.data)
        return [ResponseData(event.stream_id, data)] if data else []
    if isinstance(event, ResponseTrailers):
        now = mask.current()
        if now is not None:
            answer_masking.mask_fields(now, event.trailers)
    if isinstance(event, ResponseEndOfMessage):
        rest = mask.close()
        return [ResponseData(event.stream_id, rest), event] if rest else [event]
    return [event]


def _over(event: events.Event) -> CommandGenerator[None]:
    raise AssertionError(f"{event} came for a stream that is over")


def _broken_line(request: http.Request) -> str | None:
    """Name a header whose value holds what some servers take for the end of a line."""
    fields = request.headers.fields
    if not LINE_BREAKS.search(b" ".join([value for _, value in fields])):  # one search in the usual case
        return None
    for name, value in fields:
        if LINE_BREAKS.search(value):
            return f"the value of header {name!r} holds a line break or a NUL"
    return None


def _in_own_words(problem: str) -> str:
    """Return a problem of a request without mitmproxy's advice on its own settings."""
    if "CONNECT" in problem:
        return "CONNECT is not for this mode of the proxy"
    return problem.partition(", refusing")[0]


def _declared_length(request: http.Request) -> int:
    value = request.headers.get("content-length", "0")
    return int(value) if value.isascii() and value.isdigit() else 0
