"""Uploads that stream: large ones and gRPC, where nothing says MCP. They are scanned as they go.

mitmproxy continues when a hook raises, so every hook here has a boundary that turns any exception into a refusal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from addons import flow_state as flows
from proxy.core.model import Context, Denial
from proxy.wire.body import is_call_in_query
from proxy.wire.stream_scan import StreamScanner, is_grpc

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mitmproxy import http

    from addons.legacy_endpoints import LegacyEndpoints
    from addons.limits import Limits
    from addons.refusals import Refusals
    from proxy.gate.gate import Gate
    from proxy.wire.mcp import RequestHead


class Uploads:
    """The addon that decides which requests stream. Stands before McpGate, which reads all others."""

    def __init__(self, gate: Gate, limits: Limits, legacy: LegacyEndpoints, refusals: Refusals) -> None:
        self._gate = gate
        self._limits = limits
        self._legacy = legacy
        self._refusals = refusals

    def requestheaders(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Let a large upload and the messages of gRPC stream, where nothing says MCP; scan them as they go."""
        try:
            request, flows.state_of(flow).reflections = flow.request, self._gate.reflections
            length = request.headers.get("content-length", "")
            large = length.isdigit() and int(length) > self._limits.body_bytes
            if large and self._limits.is_large_upload(request.host):
                self._start_stream(flow, int(length) * 4)
            elif request.is_http2 and is_grpc(request.headers.get("content-type", "")):
                self._start_stream(flow, self._limits.stream_bytes)
            return self._check_upload(flow) if flow.request.stream else None
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._refusals.fail(flow, error)
            return None

    def large_upload(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Let an upload stream that did not say how large it is, once it is too large to be read whole."""
        try:
            self._start_stream(flow, self._limits.stream_bytes)
            return self._check_upload(flow) if flow.request.stream else None
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            flow.request.stream = False
            self._refusals.fail(flow, error)
            return None

    def _check_upload(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Have an upload that streams judged by flows, where any is about it: nothing compares what it holds."""
        context, head = flows.context(flow), flows.head(flow.request)
        plain = self._gate.plain_requests
        judged = plain.has_flows(context) or self._gate.credentials.may_show(context, head, b"")
        return self._judge_upload(flow, context, head) if judged else None

    async def _judge_upload(self, flow: http.HTTPFlow, context: Context, head: RequestHead) -> None:
        try:
            plain = self._gate.plain_requests
            denial = await plain.refuse_upload(context)
            # Of a body that streams nothing is changed: credentials are put into its head alone.
            filling = denial or await plain.prepare(context, replace(head, encodings=()), b"")
            if isinstance(filling, Denial):
                flow.request.stream = False
                flows.answer_refused(flow, 403, filling)
            else:
                flows.state_of(flow).filling = filling
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            flow.request.stream = False
            self._refusals.fail(flow, error)

    def _start_stream(self, flow: http.HTTPFlow, limit: int) -> None:
        request = flow.request
        if flow.response is not None or self._speaks_mcp(flow):
            return
        headers = request.headers
        flows.state_of(flow).scanner = StreamScanner(
            headers.get_all("content-type"), headers.get_all("content-encoding"), limit
        )
        plain = self._refusals.names_agree(flow) and self._refusals.framing_is_plain(flow)
        request.stream = plain and self._refusals.may_leave(flow) and self._watch(flow, limit)
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

    def report(self, flow: http.HTTPFlow) -> None:
        """Record what an upload that has ended carried."""
        state = flows.state_of(flow)
        watch, state.watch = state.watch, None
        if watch is not None:
            self._gate.plain_requests.report(flows.context(flow), watch.carried)
