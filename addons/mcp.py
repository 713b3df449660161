"""Carries HTTP requests to the gate, and its verdicts out.

mitmproxy continues when a hook raises, so every hook here has a boundary that turns
any exception into a refusal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from addons import flow_state as flows
from addons.http_carrier import HttpCarrier
from addons.lane.template import lesson_of, with_forwarded
from addons.legacy_endpoints import LegacyEndpoints
from addons.refusals import Refusals
from addons.responses import Responses
from addons.uploads import Uploads
from proxy.core.model import Context, Forward, Verdict
from proxy.gate.verdict_carrier import carry_out

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mitmproxy import http

    from addons.connections import ConnectionGuard
    from addons.limits import HeldPiece, Limits
    from proxy.core.interfaces import SharedCalls
    from proxy.gate.gate import Gate
    from proxy.wire.mcp import RequestHead


class McpGate:
    """The addon that every HTTP request passes, once it is whole."""

    def __init__(
        self,
        gate: Gate,
        limits: Limits,
        seal_key: bytes,
        connections: ConnectionGuard,
        streams_of: Callable[[str], int],
        legacy: LegacyEndpoints,
        refusals: Refusals,
        uploads: Uploads,
        *,
        teaches: bool,
    ) -> None:
        self._teaches = teaches
        self._streams_of = streams_of
        self._gate = gate
        self._limits = limits
        self._key = seal_key
        self._connections = connections
        self._legacy = legacy
        self._refusals = refusals
        self._uploads = uploads

    def request(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Decide what becomes of a request."""
        try:
            return self._inspect(flow) if self._may_be_read(flow) else None
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._refusals.fail(flow, error)
            return None

    def _may_be_read(self, flow: http.HTTPFlow) -> bool:
        """Refuse what need not be read for that."""
        if flow.response is not None or flow.error is not None or flows.state_of(flow).scanner is not None:
            self._uploads.report(flow)
            return False
        if self._connections.stopping:
            self._gate.recorder.record_refusal("request_refused", "stopping", flows.context(flow))
            self._refusals.refuse(flow, 503, "stopping")
            return False
        return self._refusals.names_agree(flow) and self._refusals.framing_is_plain(flow) and self._may_stream(flow)

    async def _inspect(self, flow: http.HTTPFlow) -> None:
        try:
            context = self._context(flow)
            head = flows.head(flow.request)
            verdict = await self._verdict(flow, context, head)
            lesson = lesson_of(flow, flows.state_of(flow), context, head) if self._teaches else None
            seconds = self._limits.keep_alive_seconds
            await carry_out(verdict, HttpCarrier(self._gate, self._legacy, self._key, flow, context, seconds))
            if lesson is not None and isinstance(verdict, Forward) and not verdict.headers and verdict.filling is None:
                flows.state_of(flow).lesson = with_forwarded(lesson, flow.request)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._refusals.fail(flow, error)

    async def _verdict(self, flow: http.HTTPFlow, context: Context, head: RequestHead) -> Verdict:
        """Return the verdict on a request: the one that the lane has got for it, or the gate's."""
        state = flows.state_of(flow)
        premade, state.premade = state.premade, None
        if isinstance(premade, Exception):
            raise premade
        if premade is not None:
            return premade
        return await self._gate.requests.inspect(flow.request.raw_content or b"", context, head)

    def is_legacy(self, server: str, target: str, head: RequestHead) -> bool:
        """Return whether answers to such a request may travel on a stream of their own by now."""
        return self._legacy.is_known(server, target) and not any(
            name.lower() == "mcp-session-id" for name, _ in head.mcp
        )

    def _may_stream(self, flow: http.HTTPFlow) -> bool:
        """Refuse a stream too many."""
        request = flow.request
        if request.method != "GET" or flows.EVENT_STREAM not in request.headers.get("accept", "").lower():
            return True
        if self._streams_of(flows.principal(flow).agent) < self._limits.streams:
            return True
        self._gate.recorder.record_refusal("request_refused", "too_many_streams", flows.context(flow))
        self._refusals.refuse(flow, 503, "too_many_streams")
        return False

    def _context(self, flow: http.HTTPFlow) -> Context:
        """Return what the gate knows of a flow; a legacy endpoint without a session in its query is one by itself."""
        context = flows.context(flow)
        if context.session is None and flow.request.method == "POST" and self._legacy.takes(flow):
            return replace(context, session=flow.request.path, transport="sse")
        return context

    async def held_piece(self, piece: HeldPiece) -> None:
        """Fill in what the client of a call that waits for people is sent next."""
        try:
            held = flows.state_of(piece.flow).held_response
            assert held is not None
            await held.next(piece)
        except Exception as error:  # noqa: BLE001  a hook's boundary: any failure refuses
            self._refusals.fail(piece.flow, error)
            piece.data, piece.is_decided, piece.makes_call = b"", True, False


class HttpAddons(NamedTuple):
    """The addons of HTTP, in the order in which a flow passes them."""

    uploads: Uploads
    mcp: McpGate
    responses: Responses


def http_addons(
    gate: Gate,
    limits: Limits,
    seal_key: bytes,
    connections: ConnectionGuard,
    streams_of: Callable[[str], int],
    shared_calls: SharedCalls | None = None,
    *,
    teaches: bool = False,
) -> HttpAddons:
    """Return the addons that carry HTTP to one gate; `teaches` is whether the lane learns from them."""
    legacy, refusals = LegacyEndpoints(shared_calls), Refusals(gate)
    uploads = Uploads(gate, limits, legacy, refusals)
    mcp = McpGate(gate, limits, seal_key, connections, streams_of, legacy, refusals, uploads, teaches=teaches)
    return HttpAddons(uploads, mcp, Responses(gate, limits, legacy, refusals, uploads))
