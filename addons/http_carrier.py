"""Carries the gate's verdict on an HTTP request out: forwards, answers, refuses, holds, or lets pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from addons import flow_state as flows
from addons.credential_filling import PARTS
from addons.header_fields import drop_fields
from addons.held_response import BEGIN_SECONDS, HeldResponse, takes_events
from proxy.core.model import Denial
from proxy.gate.a2a_rest import router_for
from proxy.wire.jsonrpc import serialise
from proxy.wire.sse_ping_carrier import carrier

if TYPE_CHECKING:
    from mitmproxy import http

    from addons.legacy_endpoints import LegacyEndpoints
    from proxy.core.model import Answer, Context, Forward, Held, InFlightCall, Pass, Reject
    from proxy.gate.gate import Gate


class HttpCarrier:
    """Carries out the verdict on one request."""

    def __init__(
        self,
        gate: Gate,
        legacy: LegacyEndpoints,
        seal_key: bytes,
        flow: http.HTTPFlow,
        context: Context,
        keep_alive: float,
    ) -> None:
        self._gate = gate
        self._legacy = legacy
        self._key = seal_key
        self._flow = flow
        self._context = context
        self._keep_alive = keep_alive

    async def forward(self, verdict: Forward) -> None:
        flows.state_of(self._flow).filling = verdict.filling
        body = verdict.encoded if verdict.encoded is not None else await self._gate.requests.encode(verdict)
        self._forward(body, verdict.in_flight, verdict.headers)

    async def answer(self, verdict: Answer) -> None:
        flow = self._flow
        if not flows.may_leave(flow) and self._legacy.takes(flow):
            _answer(flow, replace(verdict, status=403))  # the stream that would carry the answer is out of reach
        elif verdict.replies and self._legacy.takes(flow):
            # The server takes what carries the answer as it takes any message of this client: with its credentials.
            head = replace(flows.head(flow.request), encodings=())
            filling = await self._gate.plain_requests.prepare(self._context, head, b"")
            if isinstance(filling, Denial):
                _answer(flow, replace(verdict, status=403))
                return
            flows.state_of(flow).filling = filling
            self._forward(serialise(carrier(verdict.replies, self._key)), None, {})
        else:
            _answer(flow, verdict)

    async def reject(self, verdict: Reject) -> None:
        flows.answer_refused(self._flow, verdict.status, verdict.denial)

    async def hold(self, verdict: Held) -> None:
        held = HeldResponse(self._flow, verdict, self, self._keep_alive)
        # Without an event stream nothing can be sent meanwhile: a JSON response begins when this hook ends.
        if await held.is_decided(BEGIN_SECONDS if takes_events(self._flow) else None):
            await held.carry_out()
        else:
            flows.state_of(self._flow).held_response = held

    async def let_pass(self, verdict: Pass) -> None:
        """Let what is not MCP pass; a stream that a client GETs may still carry answers."""
        request = self._flow.request
        flows.settle_framing(request)
        flows.state_of(self._flow).filling = verdict.filling
        if "range" in request.headers and self._gate.credentials.may_have(self._context.server):
            drop_fields(request.headers, PARTS)  # in parts, what comes back could not be told
        if request.method == "GET":
            if flows.EVENT_STREAM in request.headers.get("accept", "").lower():
                request.headers["accept-encoding"] = "identity"
            self._route_responses(None)

    def _forward(self, body: bytes, in_flight: InFlightCall | None, headers: dict[str, str]) -> None:
        flows.forward_as_json(self._flow.request, body, headers)
        self._route_responses(in_flight)

    def _route_responses(self, in_flight: InFlightCall | None) -> None:
        router = router_for(self._gate.responses, self._context, in_flight, self._key)
        flows.state_of(self._flow).router = router


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
