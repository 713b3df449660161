"""Carries HTTP bodies and event streams to the gate, and its verdicts back.

mitmproxy goes on when a hook raises, so every hook here has a boundary that turns
any exception into a refusal.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog

from addons import flow_state as flows
from addons.sse_rewriter import EventStream
from proxy.core.model import Answer, Context, Denial, Forward, InFlightCall, Pass, Reject, Verdict
from proxy.gate.router import Responses
from proxy.wire.body import READ_AT_ONCE
from proxy.wire.content_coding import codings, decode_body, inflater
from proxy.wire.jsonrpc import serialise
from proxy.wire.sse_ping_carrier import carrier
from proxy.wire.upload import UploadScanner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mitmproxy import http

    from addons.limits import Limits, ResponseChunk
    from proxy.core.interfaces import SharedCalls
    from proxy.gate.request import Gate

log = structlog.get_logger("interlock.http")

MAX_ENDPOINTS = 1000


class McpGate:
    """The addon that every HTTP message passes."""

    def __init__(
        self,
        gate: Gate,
        limits: Limits,
        seal_key: bytes,
        is_stopping: Callable[[], bool],
        streams_of: Callable[[str], int],
        shared_calls: SharedCalls | None = None,
    ) -> None:
        self._shared_calls = shared_calls
        self._streams_of = streams_of
        self._gate = gate
        self._limits = limits
        self._key = seal_key
        self._is_stopping = is_stopping
        self._legacy_endpoints: set[tuple[str, str]] = set()

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Let a large upload stream where its host may have one; scan it as it goes."""
        try:
            self._start_upload(flow)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)

    def _start_upload(self, flow: http.HTTPFlow) -> None:
        request = flow.request
        length = request.headers.get("content-length", "")
        large = length.isdigit() and int(length) > self._limits.body_bytes
        if flow.response is None and large and self._limits.is_large_upload(request.host):
            flows.state_of(flow).scanner = UploadScanner(
                request.headers.get_all("content-type"), request.headers.get_all("content-encoding"), int(length) * 4
            )
            plain = self._names_agree(flow) and self._framing_is_plain(flow)
            request.stream = plain and self._may_leave(flow) and self._watch(flow, int(length) * 4)
            request.authority = request.authority if request.is_http2 else ""

    def _watch(self, flow: http.HTTPFlow, limit: int) -> bool:
        """Have a streaming upload looked through where secrets may not go; return whether its head may pass."""
        watch = self._gate.watch_upload(flows.context(flow), flows.head(flow.request), limit)
        if isinstance(watch, Denial):
            flows.answer_refused(flow, 403, watch)
            return False
        if watch is not None:
            flows.state_of(flow).watch = watch
        return True

    def _tell_of_upload(self, flow: http.HTTPFlow) -> None:
        state = flows.state_of(flow)
        watch, state.watch = state.watch, None
        if watch is not None:
            self._gate.declare(flows.context(flow), watch.carried)

    def request(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Decide what becomes of a request."""
        try:
            return self._inspect(flow) if self._may_be_read(flow) else None
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)
            return None

    def _may_be_read(self, flow: http.HTTPFlow) -> bool:
        """Refuse what need not be read for that."""
        if flow.response is not None or flow.error is not None or flows.state_of(flow).scanner is not None:
            self._tell_of_upload(flow)
            return False
        if self._is_stopping():
            self._gate.note("request_refused", "stopping", flows.context(flow))
            self._refuse(flow, 503, "stopping")
            return False
        return self._names_agree(flow) and self._framing_is_plain(flow) and self._may_stream(flow)

    async def _inspect(self, flow: http.HTTPFlow) -> None:
        try:
            context = self._context(flow)
            content = flow.request.raw_content or b""
            verdict = await self._gate.inspect(content, context, flows.head(flow.request))
            body = await self._gate.encode(verdict) if isinstance(verdict, Forward) else b""
            self._carry_out(flow, verdict, context, body)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)

    def _names_agree(self, flow: http.HTTPFlow) -> bool:
        problem = flows.misdirected(flow)
        if problem is None:
            return True
        self._gate.note("request_refused", "host_mismatch", flows.context(flow), problem=problem)
        self._refuse(flow, 421, "host_mismatch", f"{problem[:1].upper()}{problem[1:]}.")
        return False

    def _may_stream(self, flow: http.HTTPFlow) -> bool:
        """Refuse a stream too many."""
        request = flow.request
        if request.method != "GET" or flows.EVENT_STREAM not in request.headers.get("accept", "").lower():
            return True
        if self._streams_of(flows.principal(flow).agent) < self._limits.streams:
            return True
        self._gate.note("request_refused", "too_many_streams", flows.context(flow))
        self._refuse(flow, 503, "too_many_streams")
        return False

    def _may_leave(self, flow: http.HTTPFlow) -> bool:
        if flows.may_leave(flow):
            return True
        flows.answer_refused(flow, 403, self._gate.refuse_egress("request_refused", flows.context(flow)))
        return False

    def _framing_is_plain(self, flow: http.HTTPFlow) -> bool:
        """Refuse framing that a server may see differently, and so find another request or body in it."""
        reason = flows.odd_framing(flow.request)
        if reason is None:
            return True
        self._gate.note("request_refused", reason, flows.context(flow))
        self._refuse(flow, 400, reason)
        return False

    def _carry_out(self, flow: http.HTTPFlow, verdict: Verdict, context: Context, body: bytes) -> None:
        """Do as the verdict says; `body` is what is forwarded."""
        match verdict:
            case Forward(in_flight=in_flight, headers=headers):
                self._forward(flow, body, context, in_flight, headers)
            case Answer() if not flows.may_leave(flow) and self._is_legacy(flow):
                _answer(flow, replace(verdict, status=403))  # the stream that would bring the answer is out of reach
            case Answer() if verdict.replies and self._is_legacy(flow):
                self._forward(flow, serialise(carrier(verdict.replies, self._key)), context, None, {})
            case Answer():
                _answer(flow, verdict)
            case Reject(denial=denial, status=status):
                flows.answer_refused(flow, status, denial)
            case Pass():
                self._let_pass(flow, context)
            case _:
                raise TypeError(f"unknown verdict {verdict!r}")

    def _forward(
        self,
        flow: http.HTTPFlow,
        body: bytes,
        context: Context,
        in_flight: InFlightCall | None,
        headers: dict[str, str],
    ) -> None:
        flows.forward_as_json(flow.request, body, headers)
        flows.state_of(flow).responses = Responses(self._gate, context, in_flight, self._key)

    def _let_pass(self, flow: http.HTTPFlow, context: Context) -> None:
        """Let what is not MCP pass; a stream that a client GETs may still carry answers."""
        flows.settle_framing(flow.request)
        if flow.request.method == "GET":
            if flows.EVENT_STREAM in flow.request.headers.get("accept", "").lower():
                flow.request.headers["accept-encoding"] = "identity"
            flows.state_of(flow).responses = Responses(self._gate, context, None, self._key)

    def _is_legacy(self, flow: http.HTTPFlow) -> bool:
        """Return whether answers to this POST travel on a GET stream (HTTP+SSE, 2024-11-05)."""
        headers = flow.request.headers
        if "mcp-session-id" in headers or flows.EVENT_STREAM in headers.get("accept", ""):
            return False
        return flows.legacy_session(flow.request.path) is not None or self._is_known_endpoint(flow)

    def _context(self, flow: http.HTTPFlow) -> Context:
        """Return what the gate knows of a flow; a legacy endpoint without a session in its query is one by itself."""
        context = flows.context(flow)
        if context.session is None and flow.request.method == "POST" and self._is_legacy(flow):
            return replace(context, session=flow.request.path, transport="sse")
        return context

    def _is_known_endpoint(self, flow: http.HTTPFlow) -> bool:
        place = flows.server_name(flow), urlsplit(flow.request.path).path
        return place in self._legacy_endpoints or (
            self._shared_calls is not None and self._shared_calls.is_endpoint(*place)
        )

    def _learn_endpoint(self, server: str, path: str) -> None:
        place = server, urlsplit(path).path
        if len(self._legacy_endpoints) < MAX_ENDPOINTS:
            self._legacy_endpoints.add(place)
        if self._shared_calls is not None:
            self._shared_calls.add_endpoint(*place)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Choose how a response passes: rewritten event by event, whole, or untouched and unbuffered."""
        try:
            self._choose_response(flow)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)
            flow.kill()

    def _choose_response(self, flow: http.HTTPFlow) -> None:
        response, state = flow.response, flows.state_of(flow)
        responses = state.responses
        if response is None or state.answered or response.status_code == 101:
            return
        if responses is None:
            response.stream = True
        elif flows.media_type(response) == flows.EVENT_STREAM:
            applied = codings(response.headers.get_all("content-encoding"))
            engine = inflater(",".join(applied), 1 << 62) if applied else None
            response.headers.pop("content-encoding", None)
            if response.headers.pop("content-length", None) is not None and flow.request.http_version == "HTTP/1.1":
                response.headers["transfer-encoding"] = "chunked"
            stream = EventStream(responses, flow.request, self._limits.message_bytes, engine)
            stream.on_endpoint = self._learn_endpoint
            state.rewriter = stream
            response.stream = True
        elif responses.in_flight is None and flow.request.method == "GET":
            response.stream = True

    def response_chunk(self, chunk: ResponseChunk) -> Awaitable[None] | None:
        """Rewrite a piece of an event stream. What cannot be read to its end cuts the stream."""
        try:
            rewriter = flows.state_of(chunk.flow).rewriter
            assert rewriter is not None
            size = rewriter.waiting + len(chunk.data)
            if size > READ_AT_ONCE and rewriter.completes(chunk.data):
                return self._rewrite_aside(chunk, rewriter, size)
            _rewrite(chunk, rewriter)
        except Exception as error:
            log.exception("an event stream is cut", server=flows.server_name(chunk.flow), exc_info=error)
        return None

    async def _rewrite_aside(self, chunk: ResponseChunk, rewriter: EventStream, size: int) -> None:
        try:
            await self._gate.in_thread(size, partial(_rewrite, chunk, rewriter))
        except Exception as error:
            log.exception("an event stream is cut", server=flows.server_name(chunk.flow), exc_info=error)

    def response(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Take a whole response to an MCP message."""
        try:
            return self._take_response(flow)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)
            return None

    def _take_response(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        response, state = flow.response, flows.state_of(flow)
        responses = state.responses
        if response is None or responses is None or state.answered:
            return None
        if state.rewriter is not None:
            self._stream_ended(state.rewriter, responses)
        elif response.status_code in (202, 204):
            responses.share()  # the answer, where there is one to come, comes elsewhere
        else:
            return self._take_whole(flow, response, responses)
        return None

    def _take_whole(self, flow: http.HTTPFlow, response: http.Response, responses: Responses) -> Awaitable[None] | None:
        body = response.raw_content or b""
        if responses.in_flight is not None and (response.status_code >= 400 or not body):
            self._gate.abandon(responses.in_flight, f"http_{response.status_code}")
        if not body:
            return None
        if "content-encoding" in response.headers:
            applied = codings(response.headers.get_all("content-encoding"))
            body = decode_body(body, applied, self._limits.response_bytes)
        if len(body) > READ_AT_ONCE:
            return self._replace_aside(flow, response, responses, body)
        _put(response, responses.rewrite_whole(body))
        return None

    async def _replace_aside(
        self, flow: http.HTTPFlow, response: http.Response, responses: Responses, body: bytes
    ) -> None:
        try:
            _put(response, await self._gate.in_thread(len(body), partial(responses.rewrite_whole, body)))
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)

    def _stream_ended(self, stream: EventStream, responses: Responses) -> None:
        """Note a call whose stream ended without its answer; in a session, a later stream may bring it.

        Of a legacy session there is no later one.
        """
        in_flight = responses.in_flight
        if stream.is_legacy:
            self._gate.abandon_session(responses.context)
        elif in_flight is not None and in_flight.context.session is None:
            self._gate.abandon(in_flight, "interrupted")
        elif in_flight is not None and not in_flight.closed:
            responses.share()

    def error(self, flow: http.HTTPFlow) -> None:
        """Record that a call's answer never came, and what a broken upload carried."""
        self._tell_of_upload(flow)
        state = flows.state_of(flow)
        responses = state.responses
        if responses is not None and responses.in_flight is not None:
            self._gate.abandon(responses.in_flight, "upstream_error")
        elif responses is not None and state.rewriter is not None:
            self._stream_ended(state.rewriter, responses)

    def _refuse(self, flow: http.HTTPFlow, status: int, reason: str, why: str = "") -> None:
        flows.answer_refused(flow, status, flows.denial(reason, "the request", why))

    def _fail(self, flow: http.HTTPFlow, error: Exception) -> None:
        """Refuse a flow that could not be handled, and record it."""
        log.error("refusing after a failure", flow=flow.id, exc_info=error)
        self._refuse(flow, 502, "internal_error")
        try:
            self._gate.note("request_refused", "internal_error", flows.context(flow), error=type(error).__name__)
        except Exception as second:
            log.exception("a refusal could not be recorded", error=str(second))


def _rewrite(chunk: ResponseChunk, rewriter: EventStream) -> None:
    chunk.out.extend(rewriter.feed(chunk.data))  # what came before an event that fails has been added by then
    chunk.is_read = True


def _put(response: http.Response, payloads: list[bytes] | None) -> None:
    """Put what is to be passed on in place of what came; None means that it passes as it is."""
    if payloads is not None:
        whole = payloads[0] if len(payloads) == 1 else b"[" + b",".join(payloads) + b"]"
        flows.replace_body(response, whole)


def _answer(flow: http.HTTPFlow, verdict: Answer) -> None:
    if not verdict.replies:
        flows.answer(flow, verdict.status, b"")
        return
    if flows.wants_only_events(flow):
        body = b"".join(b"event: message\ndata: " + serialise(reply) + b"\n\n" for reply in verdict.replies)
        flows.answer(flow, verdict.status, body, flows.EVENT_STREAM)
        return
    body = serialise(list(verdict.replies)) if verdict.batch else serialise(verdict.replies[0])
    flows.answer(flow, verdict.status, body)
