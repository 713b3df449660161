"""One client connection's lane: requests with a known head go from the socket to the gate, answers straight back.

At every step the lane can hand over to mitmproxy's layers. Before a request is sent, they get its bytes and the
gate's verdict. While its answer is awaited, they get the same, do not send what was sent, and then get what
came of the answer. Only once an event stream has begun is there no way back: what is odd then cuts the stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import events

from addons.lane.answers import AnswerSoFar, Reading, read_answer, write_answer
from addons.lane.heads import END, HEAD_BYTES, RequestKey, request_key
from addons.lane.parts import LaneCall, LaneParts, Phase
from addons.lane.stream import LaneStream
from addons.mitm.fast.tls_records import FastTls, OpenedData
from proxy.core.model import Answer, Call, Forward, Verdict
from proxy.gate.a2a_rest import router_for
from proxy.wire.body import READ_AT_ONCE
from proxy.wire.hidden_request import has_request_line
from proxy.wire.jsonrpc import serialise

if TYPE_CHECKING:
    from mitmproxy.connection import Client, Connection

    from addons.lane.template import Judged, Template
    from addons.mitm.fast.connection_handler import FastConnectionHandler
    from addons.mitm.fast.http_layer import FastHttp1Server, FastHttpLayer
    from proxy.gate.router import ResponseRouter

BODY_WAIT_SECONDS = 0.05
"""How long the lane waits for the rest of a body before the layers do, which have a deadline for it."""
MAX_TEMPLATES = 32
# As the layers spell it.
_OWN_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: no-store\r\ncontent-length: %d\r\n\r\n"
)
# A subscription's stream also carries news of tools, which the announcer pushes through the layers.
_NOT_HERE = frozenset({"subscriptions/listen"})


class Lane:
    """The lane of one client connection."""

    def __init__(self, parts: LaneParts, handler: FastConnectionHandler, layer: FastHttpLayer) -> None:
        self._parts = parts
        self.handler = handler
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
        self._stream: LaneStream | None = None
        self.queue: deque[events.ConnectionEvent] = deque()
        """What came while something else had to end first."""

    @property
    def phase(self) -> Phase:
        """What the lane is doing."""
        return self._phase

    @property
    def client(self) -> Client:
        """Whose lane it is."""
        return self._client

    @property
    def current(self) -> LaneCall | None:
        """The request that is in it."""
        return self._call

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
        if phase is Phase.STREAMING and self._stream is not None:
            return self._stream.take(event)
        self.queue.append(event)  # the layers, or the next call, get it in its turn
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
        opened = self._tls.open_plain(data)
        if not isinstance(opened, bytes):
            self.handler.pass_to_layers(opened)
        elif not self._read(opened):
            self.handler.pass_to_layers(OpenedData(self._client, opened))
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
        self.handler.timeout_watchdog.register_activity()
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
        start, tls, opened = self._start, self._tls, None
        if type(event) is events.DataReceived and event.connection is self._client:
            opened = tls.open_plain(event.data) if tls is not None else event.data
        self._end_reading()
        if opened is None:
            self._pass_request(start)
            return False
        if isinstance(opened, bytes) and self._is_at_rest() and self._read(start + opened):
            return True
        self._pass_request(start)
        if tls is not None:
            event = OpenedData(self._client, opened) if isinstance(opened, bytes) else opened
        self.handler.pass_to_layers(event)
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
        return not self._layer.streams and self._http1.is_at_rest and not self.handler.is_busy

    def _holds(self, template: Template) -> bool:
        """Return whether all that was judged of a head would be judged the same now."""
        lesson, context, parts = template.lesson, template.lesson.judged.context, self._parts
        return (
            not parts.connections.stopping
            and not parts.connections.retiring  # the layers end the connection with their answer
            and self._is_free(template)
            and parts.identity.is_still(context.principal, lesson.credentials, self._client)
            and context.egress is not None
            and parts.egress.holds(self._client, lesson.address, context.egress)
            and not parts.http.mcp.is_legacy(context.server, lesson.path, lesson.judged.head)
        )

    def _is_free(self, template: Template) -> bool:
        """Return whether the server's connection can take a request."""
        return (
            template.server.state is ConnectionState.OPEN
            and template.server in self.handler.transports
            and template.http1.is_at_rest
            and (template.tls is None or template.tls.is_open)
        )

    # The call

    def _decide(self, call: LaneCall) -> None:
        self._call, self._phase = call, Phase.DECIDING
        self._parts.connections.begin(self)
        self.handler.begin_waiting(self._ask(call))

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
            self.write_client(_OWN_ANSWER % len(body) + body)
            self.end_call()
            return
        # What credentials are put into goes through the layers, so that no head here ever has a value.
        fits = (
            isinstance(verdict, Forward)
            and not verdict.headers
            and verdict.filling is None
            and verdict.message.method not in _NOT_HERE
        )
        if not fits or self.queue or not self._is_free(call.template) or has_request_line(body):
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
            and not self.queue
            and not self._parts.http.mcp.is_legacy(context.server, lesson.path, call.judged.head)
        )

    def _hand_over(self, call: LaneCall, verdict: Verdict | Exception) -> None:
        """Let the layers carry out a verdict."""
        self.end_call()
        self._pass_request(call.raw, verdict)
        self.flush()

    def _pass_request(self, raw: bytes, verdict: Verdict | Exception | None = None) -> None:
        self._layer.premade = verdict
        self.handler.pass_to_layers(
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
            self.queue.appendleft(opened)
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
                self.end_call()
                self.flush()

    def _drop_premade(self) -> None:
        """Forget a verdict that the layers have made no use of: it must never meet another request."""
        layer = self._layer
        unused, sent_on, layer.premade, layer.sent_on = layer.premade, layer.sent_on, None, None
        if isinstance(unused, Forward):
            unused.in_flight.unsent = sent_on is None
            self._parts.gate.responses.abandon(unused.in_flight, "not_forwarded")

    def end_call(self) -> None:
        """Be ready for the next call."""
        if self._call is not None:
            self._parts.connections.lane_done(self)
        self._call, self._stream, self._phase = None, None, Phase.IDLE

    def flush(self) -> None:
        """Take what came meanwhile, in its order."""
        waiting, self.queue = self.queue, deque()
        for event in waiting:
            self.handler.receive(event)

    # The answer

    def _take_answer(self, event: events.ConnectionEvent) -> bool:
        call = self._call
        assert call is not None
        if type(event) is not events.DataReceived:
            self.queue.append(event)
            self._catch_up()
            return True
        tls = call.template.tls
        opened = tls.open_plain(event.data) if tls is not None else event.data
        self.handler.timeout_watchdog.register_activity()
        if not isinstance(opened, bytes):
            self.queue.append(opened)
            self._catch_up()
            return True
        call.received += opened
        if not self._read_answer(call):
            self._catch_up()
        return True

    def _read_answer(self, call: LaneCall) -> bool:
        """Read what has come of an answer; return whether it can still be one for the lane."""
        answer = read_answer(call.received, self._largest)
        mask = self._parts.gate.reflections.current()
        if mask is not None and answer.head is not None:
            head = call.received[: answer.head.size]
            if mask.apply(head) is not head:
                return False
        if answer.reading is Reading.WHOLE:
            self._answer(call, answer)
        elif answer.reading is Reading.STREAM and answer.head is not None:
            self._begin_stream(call, answer.head.size)
        return answer.reading is not Reading.ODD

    def _answer(self, call: LaneCall, answer: AnswerSoFar) -> None:
        """Pass a whole answer on."""
        router, body = self._router(call), answer.body
        if (mask := self._parts.gate.reflections.current()) is not None:
            body = mask.apply(body)
        payloads = router.rewrite_whole(body)
        if payloads is None and body is not answer.body:
            payloads = [body]
        if router.marks:
            self._phase = Phase.STORING
            self.handler.begin_waiting(self._store_and_pass(call, router, answer, payloads))
        else:
            self._pass_answer(call, answer, payloads)

    async def _store_and_pass(
        self, call: LaneCall, router: ResponseRouter, answer: AnswerSoFar, payloads: list[bytes] | None
    ) -> None:
        """Pass a labelled answer on once its labels are stored."""
        payloads = await router.store_marks(payloads)
        if self._call is call:
            self._pass_answer(call, answer, payloads)

    def _pass_answer(self, call: LaneCall, answer: AnswerSoFar, payloads: list[bytes] | None) -> None:
        self.write_client(write_answer(call.received, answer, payloads))
        self.end_call()
        self.flush()

    def _router(self, call: LaneCall) -> ResponseRouter:
        assert call.verdict is not None
        context, in_flight = call.judged.context, call.verdict.in_flight
        return router_for(self._parts.gate.responses, context, in_flight, self._parts.seal_key)

    def _begin_stream(self, call: LaneCall, head_size: int) -> None:
        """Pass the head of an event stream on; from here on, the stream takes what comes."""
        stream = self._stream = LaneStream(self, self._parts, call, self._router(call), self._id)
        self._phase = Phase.STREAMING
        head, rest, call.received = call.received[:head_size], call.received[head_size:], b""
        stream.begin(head, rest)

    def write_client(self, data: bytes) -> None:
        """Send to the client."""
        self._write(self._client, self._tls, data)

    def _write(self, connection: Connection, tls: FastTls | None, data: bytes) -> None:
        self.handler.write(connection, data if tls is None else tls.seal(data))
