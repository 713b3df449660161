"""Carries HTTP bodies and event streams to the gate, and its verdicts back.

mitmproxy continues when a hook raises, so every hook here has a boundary that turns
any exception into a refusal.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from addons import flow_state as flows
from addons.http_carrier import HttpCarrier
from addons.lane.template import lesson_of, with_forwarded
from addons.legacy_endpoints import LegacyEndpoints
from addons.page_labels import PageLabels
from addons.sse_rewriter import EventStream
from proxy.core.model import Context, Denial, Forward, Verdict
from proxy.gate.refusal import withheld
from proxy.gate.router import ResponseRouter
from proxy.gate.verdict_carrier import carry_out
from proxy.wire.body import READ_AT_ONCE, is_call_in_query
from proxy.wire.content_coding import codings, decode_body, inflater
from proxy.wire.stream_scan import StreamScanner, is_grpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mitmproxy import http

    from addons.connections import ConnectionGuard
    from addons.limits import HeldPiece, Limits, ResponseChunk
    from proxy.core.interfaces import SharedCalls
    from proxy.gate.gate import Gate
    from proxy.gate.plain_response import PageWatch
    from proxy.gate.router import ResponseRouter
    from proxy.wire.mcp import RequestHead

log = structlog.get_logger("interlock.http")


class McpGate:
    """The addon that every HTTP message passes."""

    def __init__(
        self,
        gate: Gate,
        limits: Limits,
        seal_key: bytes,
        connections: ConnectionGuard,
        streams_of: Callable[[str], int],
        shared_calls: SharedCalls | None = None,
        *,
        teaches: bool = False,
    ) -> None:
        self._teaches = teaches
        self._streams_of = streams_of
        self._gate = gate
        self._limits = limits
        self._key = seal_key
        self._connections = connections
        self._legacy = LegacyEndpoints(shared_calls)

    def requestheaders(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Let a large upload and the messages of gRPC stream, where nothing says MCP; scan them as they go."""
        try:
            request = flow.request
            length = request.headers.get("content-length", "")
            large = length.isdigit() and int(length) > self._limits.body_bytes
            if large and self._limits.is_large_upload(request.host):
                self._start_stream(flow, int(length) * 4)
            elif request.is_http2 and is_grpc(request.headers.get("content-type", "")):
                self._start_stream(flow, self._limits.stream_bytes)
            return self._check_upload(flow) if flow.request.stream else None
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)
            return None

    def large_upload(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Let an upload stream that did not say how large it is, once it is too large to be read whole."""
        try:
            self._start_stream(flow, self._limits.stream_bytes)
            return self._check_upload(flow) if flow.request.stream else None
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            flow.request.stream = False
            self._fail(flow, error)
            return None

    def _check_upload(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Have an upload that streams judged by flows, where any is about it: nothing compares what it holds."""
        context = flows.context(flow)
        return self._judge_upload(flow, context) if self._gate.plain_requests.has_flows(context) else None

    async def _judge_upload(self, flow: http.HTTPFlow, context: Context) -> None:
        try:
            denial = await self._gate.plain_requests.refuse_upload(context)
            if denial is not None:
                flow.request.stream = False
                flows.answer_refused(flow, 403, denial)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            flow.request.stream = False
            self._fail(flow, error)

    def _start_stream(self, flow: http.HTTPFlow, limit: int) -> None:
        request = flow.request
        if flow.response is not None or self._speaks_mcp(flow):
            return
        headers = request.headers
        flows.state_of(flow).scanner = StreamScanner(
            headers.get_all("content-type"), headers.get_all("content-encoding"), limit
        )
        plain = self._names_agree(flow) and self._framing_is_plain(flow)
        request.stream = plain and self._may_leave(flow) and self._watch(flow, limit)
        request.authority = request.authority if request.is_http2 else ""

    def _speaks_mcp(self, flow: http.HTTPFlow) -> bool:
        """Return whether a request is one of MCP's: those are read whole, or not at all."""
        if "?" in flow.request.path and is_call_in_query(flow.request.path, with_body=True):
            return True
        taken = self._gate.endpoints.takes_only_mcp(flows.context(flow), flows.head(flow.request))
        return taken or self._legacy.takes(flow)

    def _watch(self, flow: http.HTTPFlow, limit: int) -> bool:
        """Have a streaming upload scanned where secrets may not go; return whether its head may pass."""
        watch = self._gate.plain_requests.watch_upload(flows.context(flow), flows.head(flow.request), limit)
        if isinstance(watch, Denial):
            flows.answer_refused(flow, 403, watch)
            return False
        if watch is not None:
            flows.state_of(flow).watch = watch
        return True

    def _report_upload(self, flow: http.HTTPFlow) -> None:
        state = flows.state_of(flow)
        watch, state.watch = state.watch, None
        if watch is not None:
            self._gate.plain_requests.report(flows.context(flow), watch.carried)

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
            self._report_upload(flow)
            return False
        if self._connections.stopping:
            self._gate.recorder.record_refusal("request_refused", "stopping", flows.context(flow))
            self._refuse(flow, 503, "stopping")
            return False
        return self._names_agree(flow) and self._framing_is_plain(flow) and self._may_stream(flow)

    async def _inspect(self, flow: http.HTTPFlow) -> None:
        try:
            context = self._context(flow)
            head = flows.head(flow.request)
            verdict = await self._verdict(flow, context, head)
            lesson = lesson_of(flow, flows.state_of(flow), context, head) if self._teaches else None
            seconds = self._limits.keep_alive_seconds
            await carry_out(verdict, HttpCarrier(self._gate, self._legacy, self._key, flow, context, seconds))
            if lesson is not None and isinstance(verdict, Forward) and not verdict.headers:
                flows.state_of(flow).lesson = with_forwarded(lesson, flow.request)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)

    async def _verdict(self, flow: http.HTTPFlow, context: Context, head: RequestHead) -> Verdict:
        """Return the verdict on a request: the one that the lane has got for it, or the gate's."""
        state = flows.state_of(flow)
        premade, state.premade = state.premade, None
        if isinstance(premade, Exception):
            raise premade
        if premade is not None:
            return premade
        return await self._gate.requests.inspect(flow.request.raw_content or b"", context, head)

    def _drop_premade(self, flow: http.HTTPFlow) -> None:
        """Record that a call which the lane had decided was refused before its verdict could be carried out."""
        state = flows.state_of(flow)
        premade, state.premade = state.premade, None
        if isinstance(premade, Forward):
            premade.in_flight.unsent = state.sent_on is None
            self._gate.responses.abandon(premade.in_flight, "not_forwarded")

    def is_legacy(self, server: str, target: str, head: RequestHead) -> bool:
        """Return whether answers to such a request may travel on a stream of their own by now."""
        return not any(name.lower() == "mcp-session-id" for name, _ in head.mcp) and self._legacy.is_known(
            server, target
        )

    def _names_agree(self, flow: http.HTTPFlow) -> bool:
        problem = flows.misdirected(flow)
        if problem is None:
            return True
        self._gate.recorder.record_refusal("request_refused", "host_mismatch", flows.context(flow), problem=problem)
        self._refuse(flow, 421, "host_mismatch", f"{problem[:1].upper()}{problem[1:]}.")
        return False

    def _may_stream(self, flow: http.HTTPFlow) -> bool:
        """Refuse a stream too many."""
        request = flow.request
        if request.method != "GET" or flows.EVENT_STREAM not in request.headers.get("accept", "").lower():
            return True
        if self._streams_of(flows.principal(flow).agent) < self._limits.streams:
            return True
        self._gate.recorder.record_refusal("request_refused", "too_many_streams", flows.context(flow))
        self._refuse(flow, 503, "too_many_streams")
        return False

    def _may_leave(self, flow: http.HTTPFlow) -> bool:
        if flows.may_leave(flow):
            return True
        flows.answer_refused(flow, 403, self._gate.plain_requests.refuse_egress("request_refused", flows.context(flow)))
        return False

    def _framing_is_plain(self, flow: http.HTTPFlow) -> bool:
        """Refuse framing that a server may see differently, and so find another request or body in it."""
        reason = flows.odd_framing(flow.request)
        if reason is None:
            return True
        self._gate.recorder.record_refusal("request_refused", reason, flows.context(flow))
        self._refuse(flow, 400, reason)
        return False

    def _context(self, flow: http.HTTPFlow) -> Context:
        """Return what the gate knows of a flow; a legacy endpoint without a session in its query is one by itself."""
        context = flows.context(flow)
        if context.session is None and flow.request.method == "POST" and self._legacy.takes(flow):
            return replace(context, session=flow.request.path, transport="sse")
        return context

    def responseheaders(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Choose how a response passes: rewritten event by event, whole, or untouched and unbuffered."""
        try:
            self._choose_response(flow)
            return self._label_page(flow)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)
            flow.kill()
            return None

    def _label_page(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Have a page that is not MCP labelled before it is passed on, where policy gives it labels."""
        state, gate = flows.state_of(flow), self._gate.flows
        is_mcp = state.router is not None and (state.router.in_flight is not None or state.rewriter is not None)
        if gate is None or flow.response is None or state.answered or is_mcp:
            return None
        context = flows.context(flow)
        return self._store_page(flow, PageLabels(gate, context)) if gate.labels_pages(context) else None

    async def _store_page(self, flow: http.HTTPFlow, page: PageLabels) -> None:
        try:
            if not await page.begin() or flow.response is None:
                return
            state = flows.state_of(flow)
            if state.page is not None:
                state.page_labels = page  # what the screen lets pass is fed to it
            elif flow.response.stream is True:
                flow.response.stream = page.feed
                state.page_labels = page
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)
            flow.kill()

    def _choose_response(self, flow: http.HTTPFlow) -> None:
        response, state = flow.response, flows.state_of(flow)
        router = state.router
        if response is None or state.answered or response.status_code == 101:
            return
        if 300 <= response.status_code < 400 and (location := response.headers.get("location")) is not None:
            state.redirect = self._gate.plain_requests.refuse_redirect(flows.context(flow), location)
            if state.redirect is not None:
                return  # what is not streamed can be replaced once it is whole
        if (router is None or router.in_flight is None) and self._watch_page(flow, response, router):
            return
        if router is None:
            response.stream = True
        elif flows.media_type(response) == flows.EVENT_STREAM:
            applied = codings(response.headers.get_all("content-encoding"))
            engine = inflater(",".join(applied), 1 << 62) if applied else None
            response.headers.pop("content-encoding", None)
            if response.headers.pop("content-length", None) is not None and flow.request.http_version == "HTTP/1.1":
                response.headers["transfer-encoding"] = "chunked"
            stream = EventStream(router, flow.request, self._limits.message_bytes, engine)
            stream.on_endpoint = self._legacy.add
            state.rewriter = stream
            response.stream = True
        elif router.in_flight is None and flow.request.method == "GET":
            response.stream = True

    def _watch_page(self, flow: http.HTTPFlow, response: http.Response, router: ResponseRouter | None) -> bool:
        """Have a page or a card examined where policy asks for that; return whether it is."""
        headers = response.headers
        if router is not None and flows.media_type(response) == flows.EVENT_STREAM:
            return False  # messages come on it, and each is examined by itself
        page = self._gate.pages.watch(
            flows.context(flow), headers.get_all("content-type"), headers.get_all("content-encoding")
        )
        if page is None:
            return False
        flows.state_of(flow).page = page
        response.stream = page.streams
        return True

    def _take_page(self, flow: http.HTTPFlow, response: http.Response, page: PageWatch) -> Awaitable[None] | None:
        body = response.raw_content or b""
        if not body or response.stream:
            return None
        if len(body) > READ_AT_ONCE:
            return self._take_page_aside(flow, response, page, body)
        _put_page(flow, response, page.take(body))
        return None

    async def _take_page_aside(
        self, flow: http.HTTPFlow, response: http.Response, page: PageWatch, body: bytes
    ) -> None:
        try:
            _put_page(flow, response, await self._gate.threads.run(len(body), page.take, body))
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)

    def response_chunk(self, chunk: ResponseChunk) -> Awaitable[None] | None:
        """Rewrite a piece of an event stream. What cannot be read to its end cuts the stream."""
        try:
            rewriter = flows.state_of(chunk.flow).rewriter
            assert rewriter is not None
            size = rewriter.waiting + len(chunk.data)
            if size > READ_AT_ONCE and rewriter.completes(chunk.data):
                return self._rewrite_aside(chunk, rewriter, size)
            _rewrite(chunk, rewriter)
            if rewriter.has_marks:
                return rewriter.store_marks(chunk.out)
        except Exception as error:
            log.exception("an event stream is cut", server=flows.server_name(chunk.flow), exc_info=error)
        return None

    async def _rewrite_aside(self, chunk: ResponseChunk, rewriter: EventStream, size: int) -> None:
        try:
            await self._gate.threads.run(size, partial(_rewrite, chunk, rewriter))
            await rewriter.store_marks(chunk.out)
        except Exception as error:
            log.exception("an event stream is cut", server=flows.server_name(chunk.flow), exc_info=error)

    async def held_piece(self, piece: HeldPiece) -> None:
        """Fill in what the client of a call that waits for people is sent next."""
        try:
            held = flows.state_of(piece.flow).held_response
            assert held is not None
            await held.next(piece)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(piece.flow, error)
            piece.data, piece.is_decided, piece.makes_call = b"", True, False

    def response(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Take a whole response to an MCP message."""
        try:
            self._drop_premade(flow)
            if (labels := flows.state_of(flow).page_labels) is not None:
                return self._end_labelled_page(flow, labels)
            return self._take_response(flow)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)
            return None

    async def _end_labelled_page(self, flow: http.HTTPFlow, labels: PageLabels) -> None:
        try:
            waiting = self._take_response(flow)
            if waiting is not None:
                await waiting
            if flow.response is not None and not flow.response.stream:
                labels.feed(flow.response.raw_content or b"")
            await labels.end(flow.response)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)

    def _take_response(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        response, state = flow.response, flows.state_of(flow)
        router = state.router
        if state.redirect is not None:
            flows.answer_refused(flow, 403, state.redirect)
            return None
        if response is not None and state.page is not None and not state.answered:
            return self._take_page(flow, response, state.page)
        if response is None or router is None or state.answered:
            return None
        if state.rewriter is not None:
            self.stream_ended(state.rewriter, router)
        elif response.status_code in (202, 204):
            router.share()  # the answer, where there is one to come, comes elsewhere
        else:
            return self._take_whole(flow, response, router)
        return None

    def _take_whole(
        self, flow: http.HTTPFlow, response: http.Response, router: ResponseRouter
    ) -> Awaitable[None] | None:
        body = response.raw_content or b""
        if router.in_flight is not None and (response.status_code >= 400 or not body):
            self._gate.responses.abandon(router.in_flight, f"http_{response.status_code}")
        if not body:
            return None
        if "content-encoding" in response.headers:
            applied = codings(response.headers.get_all("content-encoding"))
            body = decode_body(body, applied, self._limits.response_bytes)
        if len(body) > READ_AT_ONCE:
            return self._replace_aside(flow, response, router, body)
        payloads = router.rewrite_whole(body)
        if router.marks:
            return self._put_stored(flow, response, router, payloads)
        _put(response, payloads)
        return None

    async def _put_stored(
        self, flow: http.HTTPFlow, response: http.Response, router: ResponseRouter, payloads: list[bytes] | None
    ) -> None:
        """Pass a labelled response on once its labels are stored."""
        try:
            _put(response, await router.store_marks(payloads))
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)

    async def _replace_aside(
        self, flow: http.HTTPFlow, response: http.Response, router: ResponseRouter, body: bytes
    ) -> None:
        try:
            payloads = await self._gate.threads.run(len(body), partial(router.rewrite_whole, body))
            _put(response, await router.store_marks(payloads))
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._fail(flow, error)

    def stream_ended(self, stream: EventStream, router: ResponseRouter) -> None:
        """Note a call whose stream ended without its answer; in a session, a later stream may bring it.

        Of a legacy session there is no later one.
        """
        in_flight = router.in_flight
        if stream.is_legacy:
            self._gate.responses.abandon_session(router.context)
        elif in_flight is not None and in_flight.context.session is None:
            self._gate.responses.abandon(in_flight, "interrupted")
        elif in_flight is not None and not in_flight.closed:
            router.share()

    def error(self, flow: http.HTTPFlow) -> None:
        """Record that a call's answer never came, and what a broken upload carried."""
        self._report_upload(flow)
        self._drop_premade(flow)
        state = flows.state_of(flow)
        if state.held_response is not None:
            state.held_response.give_up(self._gate.responses.abandon)
        router = state.router
        if router is not None and router.in_flight is not None:
            # Never connected: the server got nothing of it, so it costs nothing of a limit.
            router.in_flight.unsent = flow.server_conn.timestamp_tcp_setup is None
            self._gate.responses.abandon(router.in_flight, "upstream_error")
        elif router is not None and state.rewriter is not None:
            self.stream_ended(state.rewriter, router)

    def _refuse(self, flow: http.HTTPFlow, status: int, reason: str, why: str = "") -> None:
        flows.answer_refused(flow, status, flows.denial(reason, "the request", why))

    def _fail(self, flow: http.HTTPFlow, error: Exception) -> None:
        """Refuse a flow that could not be handled, and record it."""
        log.error("refusing after a failure", flow=flow.id, exc_info=error)
        self._refuse(flow, 502, "internal_error")
        try:
            self._gate.recorder.record_refusal(
                "request_refused", "internal_error", flows.context(flow), error=type(error).__name__
            )
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


def _put_page(flow: http.HTTPFlow, response: http.Response, left: bytes | Denial | None) -> None:
    """Put what is left of a page in its place; None means that it passes as it is."""
    if isinstance(left, Denial) or (left is not None and response.status_code == 206):
        # Of a part of a page, nothing can be taken out: its place in the whole would be another.
        denial = left if isinstance(left, Denial) else withheld("injected_instructions", flow.request.method)
        flows.answer_refused(flow, 403, denial)
    elif left is not None:
        flows.replace_body(response, left)
        for name in ("etag", "content-md5", "digest", "repr-digest", "content-digest"):
            response.headers.pop(name, None)
        media_type = flows.media_type(response)
        response.headers["content-type"] = f"{media_type or 'text/plain'}; charset=utf-8"
