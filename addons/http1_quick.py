"""What every HTTP/1 connection does for every message, with fewer steps where a message is of the usual form.

The usual form is a body of a declared length that is here already, on a connection that stays; and a head that
its body follows at once, which leave together. All else is mitmproxy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from h11._readers import ContentLengthReader
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import ReceiveHttp, RequestHeaders, ResponseEndOfMessage, ResponseHeaders
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._http1 import Http1Connection, Http1Server

from addons.headers import index

if TYPE_CHECKING:
    from mitmproxy import http
    from mitmproxy.proxy.layer import CommandGenerator

TOGETHER_BYTES = 64 << 10
"""How large a piece of a body may be that is copied to leave with its head."""


@dataclass
class Several(HttpEvent):
    """Parts of one message that come at once: one way through the layers instead of one for each."""

    parts: tuple[HttpEvent, ...]


def together(parts: list[HttpEvent]) -> HttpEvent:
    """Give several events of one stream as one."""
    return parts[0] if len(parts) == 1 else Several(parts[0].stream_id, tuple(parts))


def _ends_answer(event: HttpEvent) -> bool:
    last = event.parts[-1] if type(event) is Several else event
    return isinstance(last, ResponseEndOfMessage)


class QuickHttp1(Http1Connection):
    """Stands before mitmproxy's classes in ours."""

    _head = b""
    _begun: RequestHeaders | ResponseHeaders | None = None
    """A head that was read, while it is seen whether its body is here as well."""

    def handle_event(self, event: events.Event) -> CommandGenerator[None]:
        """Take an event. None of what this layer asks for blocks it."""
        return self._handle_event(event)

    def send(self, event: HttpEvent) -> CommandGenerator[None]:
        """Send part of a message, or several; keep a head until what follows it at once."""
        if type(event) is Several:
            for part in event.parts:
                yield from self.send(part)
            return
        keep = isinstance(event, RequestHeaders | ResponseHeaders) and _is_followed(event)
        for command in super().send(event):
            if type(command) is commands.SendData:
                if keep:
                    self._head += command.data
                    continue
                if self._head and len(command.data) <= TOGETHER_BYTES:
                    command.data, self._head = self._head + command.data, b""
            yield from self._send_head()
            yield command
        if not keep:
            yield from self._send_head()

    def _send_head(self) -> CommandGenerator[None]:
        if self._head:
            head, self._head = self._head, b""
            yield commands.SendData(self.conn, head)

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        """Read a head, and with it the body that may be here already."""
        for command in super().read_headers(event):
            if type(command) is ReceiveHttp and isinstance(command.event, RequestHeaders | ResponseHeaders):
                self._begun = command.event
                continue
            yield from self._begin()
            yield command
        yield from self._begin()

    def _begin(self) -> CommandGenerator[None]:
        if self._begun is not None:
            begun, self._begun = self._begun, None
            yield ReceiveHttp(begun)

    def read_body(self, event: events.Event) -> CommandGenerator[None]:
        """Take a body that is here as a whole in one step."""
        reader = self.body_reader
        if not isinstance(event, events.DataReceived) or type(reader) is not ContentLengthReader:
            yield from self._free_first(super().read_body(event))
            return
        left = reader._remaining  # noqa: SLF001  mitmproxy asks it for one piece after the other
        if left > len(self.buf):
            yield from self._free_first(super().read_body(event))
            return
        yield from self._free_first(self._read_whole_body(reader, left))

    def _free_first(self, reading: CommandGenerator[None]) -> CommandGenerator[None]:
        """Tell of the end of an answer once the connection is free: who hears of it may ask the next one at once."""
        end: ReceiveHttp | None = None
        for command in reading:
            if type(command) is ReceiveHttp and _ends_answer(command.event) and not self.buf and self._stays():
                end = command
            else:
                yield command
        if end is not None:
            yield end

    def _read_whole_body(self, reader: ContentLengthReader, left: int) -> CommandGenerator[None]:
        assert self.stream_id is not None
        assert self.request is not None
        reader._remaining = 0  # noqa: SLF001
        parts: list[HttpEvent] = []
        if self._begun is not None:
            parts.append(self._begun)
            self._begun = None
        if left:
            data = bytes(self.buf.maybe_extract_at_most(left) or b"")
            parts.append(self.ReceiveData(self.stream_id, data))
        if self.request.data.method.upper() != b"CONNECT":
            parts.append(self.ReceiveEndOfMessage(self.stream_id))
        if parts:
            yield ReceiveHttp(together(parts))
        is_request = isinstance(self, Http1Server)
        yield from self.mark_done(request=is_request, response=not is_request)

    def mark_done(self, *, request: bool = False, response: bool = False) -> CommandGenerator[None]:
        """Note that a message is whole; begin anew where both are, and the connection plainly stays."""
        if not (request or self.request_done) or not (response or self.response_done) or not self._stays():
            yield from super().mark_done(request=request, response=response)
            return
        self.request_done = self.response_done = False
        self.request = self.response = None
        self.stream_id = self.stream_id + 2 if self.stream_id and isinstance(self, Http1Server) else None
        self.state = self.read_headers
        if self.buf:
            yield from self.state(events.DataReceived(self.conn, b""))

    def _stays(self) -> bool:
        """Say whether mitmproxy would keep the connection; False where it takes more than a look to say so."""
        request, response = self.request, self.response
        if request is None or response is None or response.data.status_code == 101:
            return False
        fields = index(response.headers)
        coding = fields.get(b"transfer-encoding")
        return (
            request.data.http_version == response.data.http_version == b"HTTP/1.1"
            and request.data.method.upper() != b"CONNECT"
            and _is_kept(index(request.headers).get(b"connection"))
            and _is_kept(fields.get(b"connection"))
            and (coding == [b"chunked"] or (coding is None and any(fields.get(b"content-length", ()))))
        )


def _is_kept(connection: list[bytes] | None) -> bool:
    return connection is None or connection == [b"keep-alive"]


def _is_followed(event: RequestHeaders | ResponseHeaders) -> bool:
    """Say whether the message is buffered, so that its body is the next thing to send."""
    message: http.Message = event.request if isinstance(event, RequestHeaders) else event.response
    return not event.end_stream and not message.stream and bool(message.raw_content)
