"""What every HTTP/1 connection does for every message, with fewer steps where a message is of the usual form.

The usual form is a body of a declared length that is here already, on a connection that stays; and a head that
its body follows at once, which leave together. All else is mitmproxy's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from h11._readers import ContentLengthReader
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import ReceiveHttp, RequestHeaders, ResponseHeaders
from mitmproxy.proxy.layers.http._http1 import Http1Connection, Http1Server

from addons.headers import index

if TYPE_CHECKING:
    from mitmproxy import http
    from mitmproxy.proxy.layer import CommandGenerator
    from mitmproxy.proxy.layers.http._events import HttpEvent

TOGETHER_BYTES = 64 << 10
"""How large a piece of a body may be that is copied to leave with its head."""


class QuickHttp1(Http1Connection):
    """Stands before mitmproxy's classes in ours."""

    _head = b""

    def handle_event(self, event: events.Event) -> CommandGenerator[None]:
        """Take an event. None of what this layer asks for blocks it."""
        return self._handle_event(event)

    def send(self, event: HttpEvent) -> CommandGenerator[None]:
        """Send part of a message; keep a head until what follows it at once."""
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

    def read_body(self, event: events.Event) -> CommandGenerator[None]:
        """Take a body that is here as a whole in one step."""
        reader = self.body_reader
        if not isinstance(event, events.DataReceived) or type(reader) is not ContentLengthReader:
            yield from super().read_body(event)
            return
        left = reader._remaining  # noqa: SLF001  mitmproxy asks it for one piece after the other
        if left > len(self.buf):
            yield from super().read_body(event)
            return
        assert self.stream_id is not None
        assert self.request is not None
        reader._remaining = 0  # noqa: SLF001
        if left:
            data = bytes(self.buf.maybe_extract_at_most(left) or b"")
            yield ReceiveHttp(self.ReceiveData(self.stream_id, data))
        if self.request.data.method.upper() != b"CONNECT":
            yield ReceiveHttp(self.ReceiveEndOfMessage(self.stream_id))
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
