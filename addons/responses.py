"""Carries HTTP responses to the gate: whole ones, event streams event by event, and pages that policy asks about.

mitmproxy continues when a hook raises, so every hook here has a boundary that turns any exception into a refusal.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from addons import answer_masking
from addons import flow_state as flows
from addons.page_labels import PageLabels
from addons.sse_rewriter import EventStream
from proxy.core.model import Denial, Forward
from proxy.gate.refusal import withheld
from proxy.wire.body import READ_AT_ONCE
from proxy.wire.content_coding import codings, decode_body, inflater

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mitmproxy import http

    from addons.legacy_endpoints import LegacyEndpoints
    from addons.limits import Limits, ResponseChunk
    from addons.refusals import Refusals
    from addons.uploads import Uploads
    from proxy.gate.gate import Gate
    from proxy.gate.plain_response import PageWatch
    from proxy.gate.router import ResponseRouter

log = structlog.get_logger("interlock.http")


class Responses:
    """The addon that every HTTP response passes."""

    def __init__(
        self, gate: Gate, limits: Limits, legacy: LegacyEndpoints, refusals: Refusals, uploads: Uploads
    ) -> None:
        self._gate = gate
        self._limits = limits
        self._legacy = legacy
        self._refusals = refusals
        self._uploads = uploads

    def responseheaders(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Choose how a response passes: rewritten event by event, whole, or untouched and unbuffered."""
        try:
            answer_masking.begin(self._gate, flow)
            self._choose_response(flow)
            answer_masking.hold(flow)
            return self._label_page(flow)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._refusals.fail(flow, error)
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
            self._refusals.fail(flow, error)
            flow.kill()

    def _choose_response(self, flow: http.HTTPFlow) -> None:
        response, state = flow.response, flows.state_of(flow)
        router = state.router
        if response is None or state.answered or response.status_code == 101 or state.redirect is not None:
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
            self._refusals.fail(flow, error)

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

    def response(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Take a whole response to an MCP message."""
        try:
            self._drop_premade(flow)
            if (labels := flows.state_of(flow).page_labels) is not None:
                return self._end_labelled_page(flow, labels)
            return self._take_response(flow)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._refusals.fail(flow, error)
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
            self._refusals.fail(flow, error)

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
            self._refusals.fail(flow, error)

    async def _replace_aside(
        self, flow: http.HTTPFlow, response: http.Response, router: ResponseRouter, body: bytes
    ) -> None:
        try:
            payloads = await self._gate.threads.run(len(body), partial(router.rewrite_whole, body))
            _put(response, await router.store_marks(payloads))
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._refusals.fail(flow, error)

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
        self._uploads.report(flow)
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

    def _drop_premade(self, flow: http.HTTPFlow) -> None:
        """Record that a call which the lane had decided was refused before its verdict could be carried out."""
        state = flows.state_of(flow)
        premade, state.premade = state.premade, None
        if isinstance(premade, Forward):
            premade.in_flight.unsent = state.sent_on is None
            self._gate.responses.abandon(premade.in_flight, "not_forwarded")


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
