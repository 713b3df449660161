"""Connections: how many, how long they may stay silent, and nothing that is not HTTP.

Also counts the requests in progress, so that a stop can wait for them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog
from mitmproxy import ctx, http

from addons.flow_state import EVENT_STREAM, context, media_type, principal, server_name, state_of
from addons.limits import BodyOverdue, Refusal, plain_response
from proxy.core.model import Call, Context, Principal
from proxy.gate.halts import covers
from proxy.metrics.counters import ACCEPTED, CONNECTIONS, LANE_CALLS

if TYPE_CHECKING:
    from mitmproxy.connection import Client, Connection
    from mitmproxy.flow import Flow
    from mitmproxy.proxy.mode_servers import ProxyConnectionHandler
    from mitmproxy.proxy.server_hooks import ServerConnectionHookData

    from proxy.core.halts import Halt
    from proxy.gate.gate import Gate

log = structlog.get_logger("interlock.connections")


class Counters(Protocol):
    """Counters of this worker, and their sum over all workers (`in_all`)."""

    def set(self, name: str, value: float, /) -> None: ...

    def add(self, name: str, /) -> None: ...

    def in_all(self, name: str, /) -> float: ...


class InLane(Protocol):
    """A call that passes no layers."""

    @property
    def client(self) -> Client: ...

    @property
    def call(self) -> Call: ...


class ConnectionGuard:
    """The addon that bounds connections, those of all workers together, and counts requests."""

    def __init__(
        self,
        gate: Gate,
        counters: Counters,
        *,
        connection_limit: int,
        first_request_seconds: float,
        body_seconds: float,
        default_agent: str,
    ) -> None:
        self._gate = gate
        self._counters = counters
        self._limit = connection_limit
        self._seconds = first_request_seconds
        self._body_seconds = body_seconds
        self._agent = default_agent
        self._deadlines: dict[str, asyncio.TimerHandle] = {}
        # When each body is overdue. All have the same time to arrive, so the first in is the next one overdue, and
        # one timer serves all: few bodies take long, and a timer for each would cost every call.
        self._bodies: dict[str, tuple[float, http.HTTPFlow]] = {}
        self._body_timer: asyncio.TimerHandle | None = None
        self._in_progress: dict[str, http.HTTPFlow] = {}
        self._streams: dict[str, http.HTTPFlow] = {}  # event streams and WebSockets, which no stop waits for
        self._expiries: dict[str, asyncio.TimerHandle] = {}  # of the streams whose agent has a token that ends
        self._in_lane: dict[str, InLane] = {}  # by client connection
        self._idle = asyncio.Event()
        self._idle.set()
        self.stopping = False
        self.retiring = False  # whether another proxy accepts the new connections

    def client_connected(self, client: Client) -> None:
        """Refuse a connection past the limit; start the deadline of the others' first request."""
        connections = _connections()
        self._counters.set(CONNECTIONS, len(connections))
        self._counters.add(ACCEPTED)
        if self._counters.in_all(CONNECTIONS) > self._limit:
            client.error = f"more than {self._limit} connections (connection_limit)"
            # mitmproxy closes a client with an error without a word; a 503 tells an agent to try again.
            writer = connections[client.id].transports[client].writer
            if writer is not None:
                writer.write(plain_response(503, f"there are {client.error}", Retry_After="1"))
            context = Context(Principal(self._agent), "unknown")
            self._gate.recorder.record_refusal("connection_refused", "too_many_connections", context, status=503)
            return
        loop = asyncio.get_running_loop()
        self._deadlines[client.id] = loop.call_later(self._seconds, self._refuse_silent, client)

    @property
    def open_count(self) -> int:
        """How many connections the clients of this worker have open."""
        return len(_connections())

    def client_disconnected(self, client: Client) -> None:
        """Drop what is stored about a connection, and close its socket."""
        self._counters.set(CONNECTIONS, len(_connections()) - 1)
        self._end_deadline(client)
        # A flow whose layer failed gets neither `response` nor `error`: a stop must not wait for it.
        for flow in [*self._in_progress.values(), *self._streams.values()]:
            if flow.client_conn.id == client.id:
                self._done(flow.id)
        self._in_lane.pop(client.id, None)
        self._settle()
        _close_socket(client.id, client)

    def server_disconnected(self, data: ServerConnectionHookData) -> None:
        _close_socket(data.client.id, data.server)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Count the request as in progress, and start its body's deadline."""
        self._end_deadline(flow.client_conn)
        due = asyncio.get_running_loop().time() + self._body_seconds
        self._bodies[flow.id] = due, flow
        if self._body_timer is None:
            self._set_body_timer(due)
        self._in_progress[flow.id] = flow
        self._idle.clear()

    def request(self, flow: http.HTTPFlow) -> None:
        self._bodies.pop(flow.id, None)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Count an open event stream as done: a server holds it open for messages of its own, and a stop would wait."""
        self._end_keep_alive(flow)
        if flow.request.method == "GET" and flow.response and media_type(flow.response) == EVENT_STREAM:
            self._done(flow.id)
            self._open_stream(flow)

    def websocket_start(self, flow: http.HTTPFlow) -> None:
        self._open_stream(flow)

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        self._close_stream(flow.id)

    def _open_stream(self, flow: http.HTTPFlow) -> None:
        """Know an event stream or a WebSocket, and end it with the token that opened it."""
        self._streams[flow.id] = flow
        caller = state_of(flow).principal
        if caller is not None and caller.identity is not None:
            left = max(0.0, caller.identity.expires - self._gate.recorder.now())
            self._expiries[flow.id] = asyncio.get_running_loop().call_later(left, self._end_expired, flow)

    def _close_stream(self, flow_id: str) -> None:
        self._streams.pop(flow_id, None)
        if (timer := self._expiries.pop(flow_id, None)) is not None:
            timer.cancel()

    def _end_expired(self, flow: http.HTTPFlow) -> None:
        self._close_stream(flow.id)
        self._gate.recorder.record_refusal("request_refused", "token_expired", context(flow))
        _close_connection(flow.client_conn, "token expired")

    def response(self, flow: http.HTTPFlow) -> None:
        self._end_keep_alive(flow)
        self._done(flow.id)

    def _end_keep_alive(self, flow: http.HTTPFlow) -> None:
        """Let the client of a proxy that was taken over come back on a new connection, which the other one accepts.

        To close a connection that is idle could meet a request on its way: clients do not send a POST again.
        """
        if self.retiring and flow.response is not None and flow.request.http_version.startswith("HTTP/1"):
            flow.response.headers["Connection"] = "close"

    def error(self, flow: http.HTTPFlow) -> None:
        """Count the request as done; record it where a limit ended it."""
        self._done(flow.id)
        state = state_of(flow)
        if state.refused:
            context = Context(state.principal or Principal(self._agent), server_name(flow))
            self._gate.recorder.record_refusal("request_refused", state.refused, context)

    async def read_ahead(self, _: Client) -> None:
        """Let other connections have their turn between two pipelined requests."""
        await asyncio.sleep(0)

    def http_refused(self, refusal: Refusal) -> None:
        context = Context(Principal(self._agent), refusal.server)
        self._gate.recorder.record_refusal("connection_refused", refusal.reason, context, status=refusal.status)

    def cut(self, halt: Halt) -> None:
        """End what is under way that a halt is about: the calls are recorded so, and their connections closed."""
        for in_flight in self._gate.in_flight.under_way():
            if covers(halt, in_flight.call):
                self._gate.responses.abandon(in_flight, "halted")
        for flow in [*self._in_progress.values(), *self._streams.values()]:
            if covers(halt, _call_of(flow)):
                _close_connection(flow.client_conn)
        for lane in list(self._in_lane.values()):
            if covers(halt, lane.call):
                _close_connection(lane.client)

    def tcp_start(self, flow: Flow) -> None:
        """Kill what is not HTTP. HttpOnly chooses no such layer; this holds if it ever did."""
        flow.kill()
        server = "{}:{}".format(*(flow.server_conn.address or ("?", 0))[:2])
        context = Context(Principal(self._agent), server)
        self._gate.recorder.record_refusal("connection_refused", "not_http", context, protocol=flow.type)

    udp_start = dns_request = tcp_start

    async def drained(self, seconds: float) -> bool:
        """Wait until no request is in progress; return whether that came in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def begin(self, lane: InLane) -> None:
        """Count a call that passes no layers as in progress."""
        self._counters.add(LANE_CALLS)
        self._in_lane[lane.client.id] = lane
        self._idle.clear()

    def lane_done(self, lane: InLane) -> None:
        """Count it as done."""
        self._in_lane.pop(lane.client.id, None)
        self._settle()

    def _done(self, flow_id: str) -> None:
        self._bodies.pop(flow_id, None)
        self._in_progress.pop(flow_id, None)
        self._close_stream(flow_id)
        self._settle()

    def _settle(self) -> None:
        if not self._in_progress and not self._in_lane:
            self._idle.set()

    def _set_body_timer(self, due: float) -> None:
        self._body_timer = asyncio.get_running_loop().call_at(due, self._end_overdue_bodies)

    def _end_overdue_bodies(self) -> None:
        """End the flows whose body is overdue, and set the timer for the next one."""
        self._body_timer = None
        now = asyncio.get_running_loop().time()
        while self._bodies:
            due, flow = next(iter(self._bodies.values()))
            if due > now:
                self._set_body_timer(due)
                return
            del self._bodies[flow.id]
            _end_overdue_body(flow)

    def _end_deadline(self, client: Client) -> None:
        if deadline := self._deadlines.pop(client.id, None):
            deadline.cancel()

    def _refuse_silent(self, client: Client) -> None:
        self._deadlines.pop(client.id, None)
        handler = _connections().get(client.id)
        io = handler.transports.get(client) if handler else None
        if io is not None and io.handler is not None:
            context = Context(Principal(self._agent), "unknown")
            self._gate.recorder.record_refusal("connection_refused", "no_request", context, seconds=self._seconds)
            io.handler.cancel("no request in time")


def _end_overdue_body(flow: http.HTTPFlow) -> None:
    try:
        ctx.master.addons.get("proxyserver").inject_event(BodyOverdue(flow))
    except ValueError:
        log.debug("the connection is closed already", flow=flow.id)


def _call_of(flow: http.HTTPFlow) -> Call:
    """Return what a flow carries: the call in it, or else that somebody wants something of a server."""
    router = state_of(flow).router
    if router is not None and router.in_flight is not None:
        return router.in_flight.call
    return Call("", server_name(flow), principal(flow).agent)


def _close_connection(client: Client, why: str = "halted") -> None:
    handler = _connections().get(client.id)
    io = handler.transports.get(client) if handler else None
    if io is not None and io.handler is not None:
        io.handler.cancel(why)


def _close_socket(client_id: str, connection: Connection) -> None:
    """Close a socket that mitmproxy leaves open.

    mitmproxy cancels the task that reads a connection. The task closes the socket only where the cancellation finds
    it reading; otherwise the peer would wait for an end that never comes.
    """
    handler = _connections().get(client_id)
    io = handler.transports.get(connection) if handler else None
    if io is not None and io.writer is not None:
        io.writer.close()


def _connections() -> dict[tuple[object, ...] | str, ProxyConnectionHandler]:
    server = ctx.master.addons.get("proxyserver")
    connections: dict[tuple[object, ...] | str, ProxyConnectionHandler] = server.connections
    return connections
