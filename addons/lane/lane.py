"""One client connection's lane: requests with a known head go from the socket to the gate, answers straight back.

At every step the lane can hand over to mitmproxy's layers. Before a request is sent, they get its bytes and the
gate's verdict. While its answer is awaited, they get the same, do not send what was sent, and then get what
came of the answer. Only once an event stream has begun is there no way back: what is odd then cuts the stream.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

import structlog
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import events

from addons.lane.chunks import ChunkReader
from addons.lane.heads import END, HEAD_BYTES, RequestKey, ResponseHead, read_response, request_key, with_length
from addons.mitm.fast.tls_records import FastTls, OpenedData
from addons.sse_rewriter import EventStream
from proxy.core.model import Answer, Call, Forward, Verdict
from proxy.gate.a2a_rest import router_for
from proxy.wire.body import READ_AT_ONCE
from proxy.wire.hidden_request import has_request_line
from proxy.wire.jsonrpc import serialise

if TYPE_CHECKING:
    from mitmproxy.connection import Client, Connection

    from addons.connections import ConnectionGuard
    from addons.egress import Egress
    from addons.identity import Identity
    from addons.lane.template import Judged, Template
    from addons.limits import Limits
    from addons.mcp import HttpAddons
    from addons.mitm.fast.connection_handler import FastConnectionHandler
    from addons.mitm.fast.http_layer import FastHttp1Server, FastHttpLayer
    from addons.tools_changed import Announcer
    from proxy.gate.gate import Gate
    from proxy.gate.router import ResponseRouter

log = structlog.get_logger("interlock.lane")

BODY_WAIT_SECONDS = 0.05
"""How long the lane waits for the rest of a body before the layers do, which have a deadline for it."""
MAX_TEMPLATES = 32
QUEUED_BYTES = 1 << 20
JSON_TYPE = b"application/json"
EVENT_STREAM = b"text/event-stream"
# As the layers spell it.
_OWN_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-store\r\ncontent-length: %d\r\n\r\n"
)
# A subscription's stream also carries news of tools, which the announcer pushes through the layers.
_NOT_HERE = frozenset({"subscriptions/listen"})
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")


class Phase(Enum):
    """What a lane is doing."""

    IDLE = auto()
    READING = auto()
    """A known head has come, and a part of its body."""
    DECIDING = auto()
    WAITING = auto()
    """The request is sent, and nothing of an answer has been passed on."""
    STORING = auto()
    """The answer has come, and waits until its labels are stored."""
    STREAMING = auto()
    HANDING_OVER = auto()
    """The layers take over a request that is sent already."""


@dataclass(frozen=True, slots=True)
class LaneParts:
    """What every lane of a worker needs."""

    gate: Gate
    http: HttpAddons
    identity: Identity
    egress: Egress
    connections: ConnectionGuard
    announcer: Announcer
    limits: Limits
    seal_key: bytes


@dataclass(slots=True)
class LaneCall:
    """One request in the lane."""

    template: Template
    key: RequestKey
    judged: Judged
    raw: bytes
    """The request as it came."""
    body: bytes
    verdict: Forward | None = None
    sent: bytes = b""
    received: bytes = b""
    router: ResponseRouter | None = None
    rewriter: EventStream | None = None
    chunks: ChunkReader | None = None


class Lane:
    """The lane of one client connection."""

    def __init__(self, parts: LaneParts, handler: FastConnectionHandler, layer: FastHttpLayer) -> None:
        self._parts = parts
        self._handler = handler
        self._layer = layer
        self._client: Client = handler.client
        side = layer.connections[self._client]
        self._http1: FastHttp1Server = side  # type: ignore[assignment]
        self._tls = next((each for each in reversed(layer.context.layers) if isinstance(each, FastTls)), None)
        self._templates: dict[tuple[bytes, ...], Template] = {}
        self._known: dict[bytes, tuple[RequestKey, Template, Judged]] = {}  # heads that were taken apart already
        self._id = f"lane {self._client.id}"  # of the one call that is in it
        self._largest = min(READ_AT_ONCE, parts.limits.body_bytes, parts.limits.response_bytes)
        self._phase = Phase.IDLE
        self._call: LaneCall | None = None
        self._start = b""  # of a request whose body has not come as a whole
        self._timer: asyncio.TimerHandle | None = None
        self._queue: deque[events.ConnectionEvent] = deque()
        self._queued_bytes = 0
        self._rewriting = False

    @property
    def phase(self) -> Phase:
        """What the lane is doing."""
        return self._phase

    @property
    def client(self) -> Client:
        """Whose lane it is."""
        return self._client

    @property
    def call(self) -> Call:
        """The call that is in it; before it is decided, that somebody wants something of a server."""
        current = self._call
        if current is not None and current.verdict is not None:
            return current.verdict.in_flight.call
        context = current.judged.context if current is not None else None
        return Call("", context.server if context else "", context.principal.agent if context else "")

    def learn(self, template: Template) -> None:
        """Take requests with this head from now on."""
        if len(self._templates) >= MAX_TEMPLATES:
            self._templates.clear()
        self._known.clear()
        self._templates[template.lesson.key.fixed] = template

    # What sockets bring

    def take(self, event: events.ConnectionEvent) -> bool:
        """Take what a connection brought; return whether the layers need not see it."""
        phase, call = self._phase, self._call
        if event.connection is not self._client and (call is None or event.connection is not call.template.server):
            return False
        if phase is Phase.IDLE:
            return type(event) is events.DataReceived and event.connection is self._client and self._begin(event.data)
        if phase is Phase.READING:
            return self._read_on(event)
        if phase is Phase.WAITING and event.connection is self._server:
            return self._take_answer(event)
        if phase is Phase.STREAMING:
            return self._take_streamed(event)
        self._queue.append(event)  # the layers, or the next call, get it in its turn
        if phase is Phase.WAITING:
            self._catch_up()  # a client that does not wait for its answer is one for the layers
        return True

    @property
    def _server(self) -> Connection:
        assert self._call is not None
        return self._call.template.server

    def _begin(self, data: bytes) -> bool:
        """Begin a call where `data` does."""
        if not self._is_at_rest() or not (self._tls is None or self._tls.is_open):
            return False
        if self._tls is None:
            return self._read(data)
        opened = self._tls.open_data(data)
        if not opened.is_plain or not self._read(opened.data):
            self._handler.pass_to_layers(opened)
        return True

    def _read(self, data: bytes) -> bool:
        """Read a request, or its start; return whether it is one for the lane."""
        end = data.find(END, 0, HEAD_BYTES)
        known = self._look_up(data[: end + len(END)]) if end >= 0 else None
        if known is None:
            return False
        key, template, judged = known
        whole = end + len(END) + key.length
        if len(data) > whole or not self._holds(template):
            return False
        self._handler.timeout_watchdog.register_activity()
        if len(data) < whole:
            self._start, self._phase = data, Phase.READING
            self._timer = asyncio.get_running_loop().call_later(BODY_WAIT_SECONDS, self._give_up_reading)
            return True
        self._decide(LaneCall(template, key, judged, data, data[end + len(END) :]))
        return True

    def _look_up(self, head: bytes) -> tuple[RequestKey, Template, Judged] | None:
        """Return what is known of a head; None where it is none for the lane."""
        known = self._known.get(head)
        if known is not None:
            return known
        key = request_key(head)
        template = self._templates.get(key.fixed) if key is not None else None
        if key is None or template is None or not 0 < key.length <= self._largest:
            return None
        if len(self._known) >= MAX_TEMPLATES:
            self._known.clear()
        known = self._known[head] = key, template, template.lesson.with_values(key.values)
        return known

    def _read_on(self, event: events.ConnectionEvent) -> bool:
        """Take the rest of a body, or leave the request to the layers."""
        start, opened = self._start, None
        if type(event) is events.DataReceived and event.connection is self._client:
            opened = self._tls.open_data(event.data) if self._tls is not None else OpenedData(self._client, event.data)
        self._end_reading()
        if opened is None:
            self._pass_request(start)
            return False
        if opened.is_plain and self._is_at_rest() and self._read(start + opened.data):
            return True
        self._pass_request(start)
        self._handler.pass_to_layers(opened if self._tls is not None else event)
        return True

    def _give_up_reading(self) -> None:
        start = self._start
        self._end_reading()
        self._pass_request(start)

    def _end_reading(self) -> None:
        self._phase, self._start = Phase.IDLE, b""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_at_rest(self) -> bool:
        return not self._layer.streams and self._http1.is_at_rest and not self._handler.is_busy

    def _holds(self, template: Template) -> bool:
        """Return whether all that was judged of a head would be judged the same now."""
        lesson, context, parts = template.lesson, template.lesson.judged.context, self._parts
        return (
            not parts.connections.stopping
            and not parts.connections.retiring  # the layers end the connection with their answer
            and self._is_free(template)
            and parts.identity.is_still(context.principal, lesson.credentials)
            and context.egress is not None
            and parts.egress.holds(self._client, lesson.address, context.egress)
            and not parts.http.mcp.is_legacy(context.server, lesson.path, lesson.judged.head)
        )

    def _is_free(self, template: Template) -> bool:
        """Return whether the server's connection can take a request."""
        return (
            template.server.state is ConnectionState.OPEN
            and template.server in self._handler.transports
            and template.http1.is_at_rest
            and (template.tls is None or template.tls.is_open)
        )

    # The call

    def _decide(self, call: LaneCall) -> None:
        self._call, self._phase = call, Phase.DECIDING
        self._parts.connections.begin(self)
        self._handler.begin_waiting(self._ask(call))

    async def _ask(self, call: LaneCall) -> None:
        """Have the gate decide, and send the request on; whatever fails is for the layers, which refuse."""
        verdict: Verdict | Exception
        body = b""
        try:
            verdict = await self._parts.gate.requests.inspect(call.body, *call.judged)
            if isinstance(verdict, Forward):
                body = verdict.encoded or await self._parts.gate.requests.encode(verdict)
        except Exception as error:  # noqa: BLE001  the layers refuse in the name of the error
            verdict = error
        if isinstance(verdict, Answer) and self._may_answer(call, verdict):
            body = serialise(verdict.replies[0])
            self._write(self._client, self._tls, _OWN_ANSWER % len(body) + body)
            self._end()
            return
        fits = isinstance(verdict, Forward) and not verdict.headers and verdict.message.method not in _NOT_HERE
        if not fits or self._queue or not self._is_free(call.template) or has_request_line(body):
            self._hand_over(call, verdict)
            return
        assert isinstance(verdict, Forward)
        call.verdict = verdict
        call.sent = call.template.lesson.forwarded.fill(call.key.values, len(body)) + body
        self._phase = Phase.WAITING
        self._write(call.template.server, call.template.tls, call.sent)

    def _may_answer(self, call: LaneCall, verdict: Answer) -> bool:
        """Return whether an answer of the gate's own is a plain one, and nothing came meanwhile."""
        lesson, context = call.template.lesson, call.judged.context
        return (
            (verdict.status, len(verdict.replies), verdict.batch) == (200, 1, False)
            and lesson.takes_json
            and not self._queue
            and not self._parts.http.mcp.is_legacy(context.server, lesson.path, call.judged.head)
        )

    def _hand_over(self, call: LaneCall, verdict: Verdict | Exception) -> None:
        """Let the layers carry out a verdict."""
        self._end()
        self._pass_request(call.raw, verdict)
        self._flush()

    def _pass_request(self, raw: bytes, verdict: Verdict | Exception | None = None) -> None:
        self._layer.premade = verdict
        self._handler.pass_to_layers(
            OpenedData(self._client, raw) if self._tls is not None else events.DataReceived(self._client, raw)
        )

    def _catch_up(self) -> None:
        """Let the layers take over a request that is sent; what came of its answer, and since, follows."""
        call = self._call
        assert call is not None
        server, tls = call.template.server, call.template.tls
        if call.received:
            opened = (
                OpenedData(server, call.received) if tls is not None else events.DataReceived(server, call.received)
            )
            self._queue.appendleft(opened)
        self._phase = Phase.HANDING_OVER
        call.template.http1.sent_already = call.sent
        self._layer.sent_on = call.template.server
        self._parts.connections.lane_done(self)
        self._pass_request(call.raw, call.verdict)
        self.note_layers()

    def note_layers(self) -> None:
        """Give the layers what came meanwhile, once they know of the request, or have refused it."""
        self._drop_premade()
        if self._phase is Phase.HANDING_OVER and self._call is not None:
            http1 = self._call.template.http1
            if not http1.sent_already or not self._layer.streams:
                http1.sent_already = b""
                self._end()
                self._flush()

    def _drop_premade(self) -> None:
        """Forget a verdict that the layers have made no use of: it must never meet another request."""
        layer = self._layer
        unused, sent_on, layer.premade, layer.sent_on = layer.premade, layer.sent_on, None, None
        if isinstance(unused, Forward):
            unused.in_flight.unsent = sent_on is None
            self._parts.gate.responses.abandon(unused.in_flight, "not_forwarded")

    def _end(self) -> None:
        if self._call is not None:
            self._parts.connections.lane_done(self)
        self._call, self._phase = None, Phase.IDLE

    def _flush(self) -> None:
        """Take what came meanwhile, in its order."""
        waiting, self._queue, self._queued_bytes = self._queue, deque(), 0
        for event in waiting:
            self._handler.receive(event)

    # The answer

    def _take_answer(self, event: events.ConnectionEvent) -> bool:
        call = self._call
        assert call is not None
        if type(event) is not events.DataReceived:
            self._queue.append(event)
            self._catch_up()
            return True
        tls = call.template.tls
        opened = tls.open_data(event.data) if tls is not None else OpenedData(event.connection, event.data)
        self._handler.timeout_watchdog.register_activity()
        if not opened.is_plain:
            self._queue.append(opened if tls is not None else event)
            self._catch_up()
            return True
        call.received += opened.data
        if not self._read_answer(call):
            self._catch_up()
        return True

    def _read_answer(self, call: LaneCall) -> bool:
        """Read what has come of an answer; return whether it can still be one for the lane."""
        data = call.received
        head = read_response(data)
        if head is None:
            return END not in data and len(data) < HEAD_BYTES and not _BARE_LINE_FEED.search(data)
        if head.media_type == EVENT_STREAM and head.length is None:
            self._begin_stream(call, head)
            return True
        if head.media_type != JSON_TYPE:
            return False
        if head.length is None:
            reader = ChunkReader()
            body = reader.feed(data[head.size :])
            if reader.ended:
                plain = not reader.surplus and 0 < len(body) <= self._largest
                return plain and self._answer(call, head, body)
            return not reader.broken and len(body) <= self._largest
        end = head.size + head.length
        if len(data) > end or not 0 < head.length <= self._largest:
            return False
        return len(data) < end or self._answer(call, head, data[head.size :])

    def _answer(self, call: LaneCall, head: ResponseHead, body: bytes) -> bool:
        """Pass a whole answer on."""
        router = self._router(call)
        payloads = router.rewrite_whole(body)
        if router.marks:
            self._phase = Phase.STORING
            self._handler.begin_waiting(self._store_and_pass(call, router, head, body, payloads))
        else:
            self._pass_answer(call, head, body, payloads)
        return True

    async def _store_and_pass(
        self, call: LaneCall, router: ResponseRouter, head: ResponseHead, body: bytes, payloads: list[bytes] | None
    ) -> None:
        """Pass a labelled answer on once its labels are stored."""
        payloads = await router.store_marks(payloads)
        if self._call is call:
            self._pass_answer(call, head, body, payloads)

    def _pass_answer(self, call: LaneCall, head: ResponseHead, body: bytes, payloads: list[bytes] | None) -> None:
        raw_head = call.received[: head.size]
        if payloads is not None:
            body = payloads[0] if len(payloads) == 1 else b"[" + b",".join(payloads) + b"]"
            answer = with_length(raw_head, len(body)) + body
        elif head.length is None:
            answer = b"%s%x\r\n%s\r\n0\r\n\r\n" % (raw_head, len(body), body)
        else:
            answer = call.received
        self._write(self._client, self._tls, answer)
        self._end()
        self._flush()

    def _router(self, call: LaneCall) -> ResponseRouter:
        assert call.verdict is not None
        context, in_flight = call.judged.context, call.verdict.in_flight
        return router_for(self._parts.gate.responses, context, in_flight, self._parts.seal_key)

    # Event streams

    def _begin_stream(self, call: LaneCall, head: ResponseHead) -> None:
        call.router = self._router(call)
        call.rewriter = EventStream(call.router, None, self._parts.limits.message_bytes)
        call.chunks = ChunkReader()
        self._phase = Phase.STREAMING
        self._parts.announcer.opened(self._id, call.judged.context.principal.agent)
        self._write(self._client, self._tls, call.received[: head.size])
        rest, call.received = call.received[head.size :], b""
        if rest:
            self._stream(call, rest)

    def _take_streamed(self, event: events.ConnectionEvent) -> bool:
        call = self._call
        assert call is not None
        if self._rewriting:
            self._queue.append(event)  # what is read meanwhile is bounded, as while a hook is awaited
            return True
        if type(event) is not events.DataReceived:
            self._cut(call)
            return False
        if event.connection is not call.template.server:
            self._queue.append(event)
            self._queued_bytes += len(event.data)
            if self._queued_bytes > QUEUED_BYTES:
                self._cut(call)
            return True
        self._handler.timeout_watchdog.register_activity()
        tls = call.template.tls
        opened = tls.open_data(event.data) if tls is not None else OpenedData(event.connection, event.data)
        self._stream(call, opened.data)
        if not opened.is_plain:
            self._end_of_server(call, OpenedData(event.connection, b"", opened.answer, opened.error, opened.closed))
        return True

    def _end_of_server(self, call: LaneCall, end: OpenedData) -> None:
        """Handle what TLS has to say beside data: mostly that the server is done."""
        if self._rewriting:
            self._queue.append(end)
        elif self._call is call:
            self._cut(call)
        else:
            self._handler.pass_to_layers(end)

    def _stream(self, call: LaneCall, data: bytes) -> None:
        """Rewrite a part of a stream and pass it on."""
        assert call.chunks is not None
        assert call.rewriter is not None
        try:
            payload = call.chunks.feed(data)
            size = call.rewriter.waiting + len(payload)
            if size > READ_AT_ONCE and call.rewriter.completes(payload):
                self._rewriting = True
                self._handler.begin_waiting(self._rewrite_aside(call, payload, size))
                return
            out = list(call.rewriter.feed(payload))
            if call.rewriter.has_marks:
                self._rewriting = True
                self._handler.begin_waiting(self._store_events(call, out))
                return
            self._pass_events(call, b"".join(out))
        except Exception as error:
            log.exception("an event stream is cut", server=call.judged.context.server, exc_info=error)
            self._cut(call)

    async def _rewrite_aside(self, call: LaneCall, payload: bytes, size: int) -> None:
        rewriter = call.rewriter
        assert rewriter is not None
        out: list[bytes] | None
        try:
            out = await self._parts.gate.threads.run(size, lambda: list(rewriter.feed(payload)))
        except Exception as error:
            log.exception("an event stream is cut", server=call.judged.context.server, exc_info=error)
            out = None
        await self._store_events(call, out)

    async def _store_events(self, call: LaneCall, out: list[bytes] | None) -> None:
        """Pass events on once what they bring is stored; None cuts the stream."""
        assert call.rewriter is not None
        try:
            if out is not None:
                await call.rewriter.store_marks(out)
        except Exception as error:
            log.exception("an event stream is cut", server=call.judged.context.server, exc_info=error)
            out = None
        self._rewriting = False
        if self._call is not call:
            return
        if out is None:
            self._cut(call)
            return
        self._pass_events(call, b"".join(out))
        self._flush()

    def _pass_events(self, call: LaneCall, out: bytes) -> None:
        assert call.chunks is not None
        ended = call.chunks.ended
        piece = b"%x\r\n%s\r\n" % (len(out), out) if out else b""
        if piece or ended:
            self._write(self._client, self._tls, piece + b"0\r\n\r\n" if ended else piece)
        if ended:
            self._end_stream(call)
            if call.chunks.surplus:
                self._handler.close_connection(call.template.server)  # bytes that no request asked for
            self._flush()
        elif call.chunks.broken:
            self._cut(call)

    def _end_stream(self, call: LaneCall) -> None:
        assert call.rewriter is not None
        assert call.router is not None
        self._parts.announcer.closed(self._id)
        self._parts.http.responses.stream_ended(call.rewriter, call.router)
        self._end()

    def _cut(self, call: LaneCall) -> None:
        """End a stream that cannot go on, and with it both connections: half an answer must not look whole."""
        assert call.verdict is not None
        self._parts.announcer.closed(self._id)
        self._parts.gate.responses.abandon(call.verdict.in_flight, "upstream_error")
        self._end()
        for connection in (call.template.server, self._client):
            if connection in self._handler.transports:
                self._handler.abort(connection)
        self._flush()

    def _write(self, connection: Connection, tls: FastTls | None, data: bytes) -> None:
        self._handler.write(connection, data if tls is None else tls.seal(data))


class LaneSide(Protocol):
    """What a connection's handler asks of its lane."""

    def take(self, event: events.ConnectionEvent) -> bool: ...
    def note_layers(self) -> None: ...
    def learn(self, template: Template) -> None: ...
