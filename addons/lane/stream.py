"""An event stream in the lane: chunks are read, events are rewritten and passed on as they come.

Its head is sent, so there is no way back to the layers: what is odd from here on cuts the stream, and with it both
connections, since half an answer must not look whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import structlog
from mitmproxy.proxy import events

from addons.lane.chunks import ChunkReader
from addons.mitm.fast.tls_records import OpenedData
from addons.sse_rewriter import EventStream
from proxy.gate.reflections import AnswerMask
from proxy.wire.body import READ_AT_ONCE

if TYPE_CHECKING:
    from collections import deque

    from addons.lane.parts import LaneCall, LaneParts
    from addons.mitm.fast.connection_handler import FastConnectionHandler
    from proxy.gate.router import ResponseRouter

log = structlog.get_logger("interlock.lane")

QUEUED_BYTES = 1 << 20
"""So much may a client send while its stream runs."""


class StreamingLane(Protocol):
    """What a stream needs of its lane, where each of these is described."""

    @property
    def handler(self) -> FastConnectionHandler: ...
    @property
    def queue(self) -> deque[events.ConnectionEvent]: ...
    @property
    def current(self) -> LaneCall | None: ...
    def write_client(self, data: bytes) -> None: ...
    def end_call(self) -> None: ...
    def flush(self) -> None: ...


class LaneStream:
    """The event stream that answers one call."""

    def __init__(
        self, lane: StreamingLane, parts: LaneParts, call: LaneCall, router: ResponseRouter, name: str
    ) -> None:
        self._lane, self._parts, self._call, self._router, self._name = lane, parts, call, router, name
        self._rewriter = EventStream(router, None, parts.limits.message_bytes)
        self._chunks = ChunkReader()
        self._mask = AnswerMask(parts.gate.reflections)
        self._rewriting = False
        self._queued_bytes = 0
        self._head = b""  # until it is sent
        parts.announcer.opened(name, call.judged.context.principal.agent)

    def begin(self, head: bytes, data: bytes) -> None:
        """Pass the head on, in one write with the events that came along with it and can be rewritten at once."""
        self._head = head
        if data:
            self.feed(data)
        if self._lane.current is self._call:
            self._send(b"")

    def _send(self, piece: bytes) -> None:
        head, self._head = self._head, b""
        if head or piece:
            self._lane.write_client(head + piece)

    def take(self, event: events.ConnectionEvent) -> bool:
        """Take what a connection brought; return whether the layers need not see it."""
        lane, server, tls = self._lane, self._call.template.server, self._call.template.tls
        if self._rewriting:
            lane.queue.append(event)  # what is read meanwhile is bounded, as while a hook is awaited
            return True
        if type(event) is not events.DataReceived:
            self._cut()
            return False
        if event.connection is not server:
            self._queue_for_later(event)
            return True
        lane.handler.timeout_watchdog.register_activity()
        opened = tls.open_plain(event.data) if tls is not None else event.data
        if isinstance(opened, bytes):
            self.feed(opened)
        else:
            self.feed(opened.data)
            self._end_of_server(OpenedData(server, b"", opened.answer, opened.error, opened.closed))
        return True

    def _queue_for_later(self, event: events.DataReceived) -> None:
        """Keep what the client sends before its stream has ended, up to a bound."""
        self._lane.queue.append(event)
        self._queued_bytes += len(event.data)
        if self._queued_bytes > QUEUED_BYTES:
            self._cut()

    def _end_of_server(self, end: OpenedData) -> None:
        """Handle what TLS has to say beside data: mostly that the server is done."""
        if self._rewriting:
            self._lane.queue.append(end)
        elif self._lane.current is self._call:
            self._cut()
        else:
            self._lane.handler.pass_to_layers(end)

    def feed(self, data: bytes) -> None:
        """Rewrite a part of the stream and pass it on."""
        rewriter = self._rewriter
        try:
            payload = self._mask.feed(self._chunks.feed(data))
            if self._chunks.ended:
                payload += self._mask.close()
            size = rewriter.waiting + len(payload)
            if size > READ_AT_ONCE and rewriter.completes(payload):
                self._rewriting = True
                self._lane.handler.begin_waiting(self._rewrite_aside(payload, size))
                return
            out = list(rewriter.feed(payload))
            if rewriter.has_marks:
                self._rewriting = True
                self._lane.handler.begin_waiting(self._store_events(out))
                return
            self._pass_events(b"".join(out))
        except Exception as error:
            log.exception("an event stream is cut", server=self._call.judged.context.server, exc_info=error)
            self._cut()

    async def _rewrite_aside(self, payload: bytes, size: int) -> None:
        out: list[bytes] | None
        try:
            out = await self._parts.gate.threads.run(size, lambda: list(self._rewriter.feed(payload)))
        except Exception as error:
            log.exception("an event stream is cut", server=self._call.judged.context.server, exc_info=error)
            out = None
        await self._store_events(out)

    async def _store_events(self, out: list[bytes] | None) -> None:
        """Pass events on once what they bring is stored; None cuts the stream."""
        try:
            if out is not None:
                await self._rewriter.store_marks(out)
        except Exception as error:
            log.exception("an event stream is cut", server=self._call.judged.context.server, exc_info=error)
            out = None
        self._rewriting = False
        if self._lane.current is not self._call:
            return
        if out is None:
            self._cut()
            return
        self._pass_events(b"".join(out))
        self._lane.flush()

    def _pass_events(self, out: bytes) -> None:
        chunks = self._chunks
        piece = b"%x\r\n%s\r\n" % (len(out), out) if out else b""
        self._send(piece + b"0\r\n\r\n" if chunks.ended else piece)
        if chunks.ended:
            self._parts.announcer.closed(self._name)
            self._parts.http.responses.stream_ended(self._rewriter, self._router)
            self._lane.end_call()
            if chunks.surplus:
                self._lane.handler.close_connection(self._call.template.server)  # bytes that no request asked for
            self._lane.flush()
        elif chunks.broken:
            self._cut()

    def _cut(self) -> None:
        """End a stream that cannot go on, and with it both connections."""
        lane, call = self._lane, self._call
        assert call.verdict is not None
        self._parts.announcer.closed(self._name)
        self._parts.gate.responses.abandon(call.verdict.in_flight, "upstream_error")
        lane.end_call()
        for connection in (call.template.server, lane.handler.client):
            if connection in lane.handler.transports:
                lane.handler.abort(connection)
        lane.flush()
