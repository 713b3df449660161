"""A response that is begun while its call waits for people: an event stream, whose comments keep the client waiting.

A client or a balancer between gives up on a connection that is silent for too long. Where the client takes an event
stream, it is sent one: comments and progress first, and then the one event that answers its call. The status of what
answers is no longer to be had by then, so an answer that is no message becomes a JSON-RPC error.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from mitmproxy import http

from addons import flow_state as flows
from proxy.core.model import Forward
from proxy.errors import WireError
from proxy.gate.verdict_carrier import carry_out
from proxy.wire.body import READ_AT_ONCE
from proxy.wire.content_coding import codings, decode_body
from proxy.wire.jsonrpc import serialise

if TYPE_CHECKING:
    from collections.abc import Callable

    from addons.limits import HeldPiece
    from proxy.core.model import Held, InFlightCall, JsonObject, Verdict
    from proxy.gate.verdict_carrier import VerdictCarrier

# What is decided sooner is answered as if it had not waited: with a status, and as JSON.
BEGIN_SECONDS: Final = 1.0
COMMENT: Final = b": waiting for an operator\n\n"
MAX_BODY: Final = 1 << 32
UPSTREAM_FAILED: Final = -32603  # JSON-RPC's "internal error"


_waiting: set[asyncio.Future[Verdict]] = set()


class HttpCaller:
    """The client of a request that is held; what it is sent waits here until its stream takes it."""

    def __init__(self, flow: http.HTTPFlow) -> None:
        self._flow = flow
        self.takes_progress = takes_events(flow)
        self.unsent: list[bytes] = []
        self.news = asyncio.Event()
        self.has_left = False

    def gone(self) -> bool:
        """Return whether the client has closed its connection, or its stream of an HTTP/2 connection."""
        state = flows.state_of(self._flow)
        is_open = flows.is_readable(self._flow.client_conn) and not any(map(flows.ends_request, state.queued))
        return self.has_left or not is_open

    async def send(self, notification: JsonObject) -> None:
        """Send a notification with the next piece of the stream; nothing where the client takes no stream."""
        if self.takes_progress:
            self.unsent.append(as_event(serialise(notification)))
            self.news.set()


class HeldResponse:
    """One call that waits, and what its client is sent meanwhile. Use from one event loop."""

    def __init__(self, flow: http.HTTPFlow, held: Held, carrier: VerdictCarrier, keep_alive: float) -> None:
        self._caller = HttpCaller(flow)
        self._carrier = carrier
        self._keep_alive = keep_alive
        self._message_id = held.message_id
        self._is_carried_out = False
        self._wait: asyncio.Future[Verdict] = asyncio.ensure_future(held.wait(self._caller))
        _waiting.add(self._wait)  # the flow may be forgotten before it has seen that its client is gone
        self._wait.add_done_callback(_waiting.discard)

    def give_up(self, abandon: Callable[[InFlightCall, str], None]) -> None:
        """Note that the flow is over: nobody waits any more. A call that is let through all the same is abandoned."""

        # The layer has taken the event by now that says so, and the one who decides may have been past asking.
        def end(wait: asyncio.Future[Verdict]) -> None:
            if not wait.cancelled() and isinstance(verdict := wait.result(), Forward):
                abandon(verdict.in_flight, "not_forwarded")

        self._caller.has_left = True
        if not self._is_carried_out:
            self._wait.add_done_callback(end)

    async def is_decided(self, seconds: float | None) -> bool:
        """Wait for so long, or to the end, and return whether people have decided by then."""
        try:
            await asyncio.wait({self._wait}, timeout=seconds)
        except BaseException:
            self._wait.cancel()  # nobody is left who would carry its verdict out
            raise
        return self._wait.done()

    async def carry_out(self) -> bool:
        """Carry out what was decided; return whether the call is to be made."""
        verdict = self._wait.result()
        self._is_carried_out = True
        await carry_out(verdict, self._carrier)
        return isinstance(verdict, Forward)

    async def next(self, piece: HeldPiece) -> None:
        """Fill in what the client is sent next: a sign of life in time, or that the wait is over."""
        news: asyncio.Future[Any] = asyncio.ensure_future(self._caller.news.wait())
        both: set[asyncio.Future[Any]] = {self._wait, news}
        try:
            await asyncio.wait(both, timeout=self._keep_alive, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._wait.cancel()
            raise
        finally:
            news.cancel()
        said = b"".join(self._caller.unsent)
        self._caller.unsent.clear()
        self._caller.news.clear()
        if self._wait.done():
            piece.data, piece.makes_call = said, await self.carry_out()
            piece.is_decided = True
        else:
            piece.data = said or COMMENT

    def answer(self, response: http.Response) -> bytes:
        """Return the event that answers the call, of a response that was read whole, and masked."""
        body = _plain_body(response)
        if response.status_code == 200 and flows.media_type(response) == flows.JSON_TYPE and body.lstrip()[:1] == b"{":
            return as_event(body)
        return self.failed(_error_of(body), f"the server answered HTTP {response.status_code} and no result")

    def failed(self, error: JsonObject | None, why: str) -> bytes:
        """Return the event that says that the call failed: by the error that came, or in our own words."""
        error = error or {"code": UPSTREAM_FAILED, "message": f"Interlock: {why}"}
        return as_event(serialise({"jsonrpc": "2.0", "id": self._message_id, "error": error}))


def takes_events(flow: http.HTTPFlow) -> bool:
    """Return whether the client takes an event stream in answer to its POST."""
    return flow.request.method == "POST" and flows.EVENT_STREAM in flow.request.headers.get("accept", "").lower()


def begun_head(request: http.Request) -> http.Response:
    """Return the head of a response that is an event stream, for the version of HTTP that the client speaks."""
    # Servers in front of the client's side buffer what is not declared so (nginx).
    fields = {"Content-Type": flows.EVENT_STREAM, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    head = http.Response.make(200, b"", fields)
    head.headers.pop("content-length", None)
    if request.http_version == "HTTP/1.1":
        head.headers["transfer-encoding"] = "chunked"
    elif request.http_version == "HTTP/1.0":
        head.headers["connection"] = "close"  # its end is that of the connection
    return head


def as_event(body: bytes) -> bytes:
    """Return a message as one event. Line breaks in JSON stand only between values, so each line is one of data."""
    lines = b"".join(b"data: " + line + b"\n" for line in body.splitlines())
    return b"event: message\n" + lines + b"\n"


def _plain_body(response: http.Response) -> bytes:
    """Return a body without its content coding, which an event cannot have; nothing where that cannot be undone."""
    body, applied = response.raw_content or b"", codings(response.headers.get_all("content-encoding"))
    try:
        # What is larger has been refused by now: the response was decoded before, to be masked.
        return decode_body(body, applied, MAX_BODY) if applied else body
    except WireError:
        return b""


def _error_of(body: bytes) -> JsonObject | None:
    """Return the error of a JSON-RPC response, or of a refusal that has no id; None where there is none."""
    if len(body) > READ_AT_ONCE:
        return None
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        return None
    code = error.get("code")
    return {**error, "code": code if isinstance(code, int) else UPSTREAM_FAILED}
