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
    from mitmproxy.proxy.layer import CommandGenerator

TOGETHER_BYTES = 64 << 10
"""How large a piece of a message may be that is copied to leave with others."""


@dataclass
class Several(HttpEvent):
    """Parts of one message that come at once: one way through the layers instead of one for each."""

    parts: tuple[HttpEvent, ...]


def together(parts: list[HttpEvent]) -> HttpEvent:
    """Give several events of one stream as one."""
    return parts[0] if len(parts) == 1 else Several(parts[0].stream_id, tuple(parts))


class QuickHttp1(Http1Connection):
    """Stands before mitmproxy's classes in ours."""

    _begun: RequestHeaders | ResponseHeaders | None = None
    """A head that was read, while it is seen whether its body is here as well."""

    def handle_event(self, event: events.Event) -> CommandGenerator[None]:
        """Take an event. None of what this layer asks for blocks it."""
        return self._handle_event(event)

    def send(self, event: HttpEvent) -> CommandGenerator[None]:
        """Send part of a message; several leave as one piece."""
        if type(event) is not Several:
            yield from super().send(event)
            return
        leaving: list[bytes] = []
        for part in event.parts:
            for command in self.send(part):
                if type(command) is commands.SendData and len(command.data) <= TOGETHER_BYTES:
                    leaving.append(command.data)
                    continue
                if leaving:
                    yield commands.SendData(self.conn, b"".join(leaving))
                    leaving = []
                yield command
        if leaving:
            yield commands.SendData(self.conn, b"".join(leaving))

    def read_headers(self, event: events.ConnectionEvent) -> CommandGenerator[None]:
        """Read a head, and with it the body that may be here already."""
        for command in super().read_headers(event):
            if type(command) is ReceiveHttp and isinstance(command.event, RequestHeaders | ResponseHeaders):
                self._begun = command.event
                continue
            yield from self._receive([])
            yield command
        yield from self._receive([])

    def _receive(self, parts: list[HttpEvent]) -> CommandGenerator[None]:
        """Tell of parts of a message, and of the head before them where nobody has heard of that yet."""
        if self._begun is not None:
            parts = [self._begun, *parts]
            self._begun = None
        if parts:
            yield ReceiveHttp(together(parts))

    def read_body(self, event: events.Event) -> CommandGenerator[None]:
        """Take what is here of a body in one step."""
        reader = self.body_reader
        if (
            isinstance(event, events.DataReceived)
            and type(reader) is ContentLengthReader
            and (left := reader._remaining) <= len(self.buf)  # noqa: SLF001  mitmproxy asks for one piece after the other
        ):
            yield from self._gather(self._read_whole_body(reader, left))
        else:
            yield from self._gather(super().read_body(event))

    def _gather(self, reading: CommandGenerator[None]) -> CommandGenerator[None]:
        """Tell of what is read as one.

        Of the end of an answer once the connection is free: who hears of it may ask the next one at once.
        """
        parts: list[HttpEvent] = []
        try:
            for command in reading:
                if type(command) is ReceiveHttp:
                    parts.append(command.event)
                    if self._goes_on(command.event):
                        continue
                yield from self._receive(parts)
                parts = []
                if type(command) is not ReceiveHttp:
                    yield command
        except NotImplementedError:  # trailers
            yield from self._receive(parts)
            raise
        yield from self._receive(parts)

    def _goes_on(self, event: HttpEvent) -> bool:
        """Say whether what follows may be read before anybody has heard of `event`."""
        if isinstance(event, ResponseEndOfMessage):
            return not self.buf and self._stays()
        return isinstance(event, self.ReceiveData)

    def _read_whole_body(self, reader: ContentLengthReader, left: int) -> CommandGenerator[None]:
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
