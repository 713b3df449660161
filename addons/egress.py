"""Carries every destination to the guard before anything is forwarded, and ties what is dialled to its judgement.

Asked for each tunnel, each request and each connection: by name, by the address
dialled, and again on a kept connection once the policy has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import structlog

from addons import http_flows as flows
from addons.dialling import Judged
from proxy.egress import UNJUDGED
from proxy.model import Context, EgressRequest, Outcome, Principal

if TYPE_CHECKING:
    from mitmproxy import http
    from mitmproxy.connection import Client
    from mitmproxy.proxy.server_hooks import ServerConnectionHookData

    from proxy.egress import EgressGuard
    from proxy.gate import Gate
    from proxy.model import Decision

log = structlog.get_logger("interlock.egress")


class _Caller(NamedTuple):
    host: str
    agent: str


@dataclass
class _Destination:
    """One host and port as seen from one client: who may go there, and the connections that are open."""

    callers: set[_Caller] = field(default_factory=set)
    open: dict[str, str] = field(default_factory=dict)


class Egress:
    """The addon that asks whether traffic may go where it wants to."""

    def __init__(self, guard: EgressGuard, gate: Gate) -> None:
        self._guard = guard
        self._gate = gate
        self._clients: WeakKeyDictionary[Client, dict[tuple[str, int], _Destination]] = WeakKeyDictionary()

    async def http_connect(self, flow: http.HTTPFlow) -> None:
        """Refuse a tunnel to where nothing may go."""
        if flow.response is not None:
            return
        await self._judge(flow, judged_inside=True)
        if flows.may_leave(flow):
            return
        try:
            denial = self._gate.refuse_egress("connection_refused", flows.context(flow))
            flows.answer_refused(flow, 403, denial)
        except Exception as error:
            log.exception("a tunnel is refused after a failure", error=str(error))
            flows.answer(flow, 403, b"")

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Judge where a request goes; the gate answers for it."""
        if flow.response is None:
            await self._judge(flow)

    async def request(self, flow: http.HTTPFlow) -> None:
        """Judge again where the policy changed while the body came."""
        if flow.response is None:
            await self._judge_anew(flow)

    async def websocket_message(self, flow: http.HTTPFlow) -> None:
        """Judge again where the policy changed since the socket was opened."""
        await self._judge_anew(flow)

    async def _judge_anew(self, flow: http.HTTPFlow) -> None:
        if flows.egress(flow).policy_version != self._guard.version:
            await self._judge(flow)

    async def _judge(self, flow: http.HTTPFlow, *, judged_inside: bool = False) -> None:
        flow.metadata[flows.EGRESS] = UNJUDGED
        try:
            flow.metadata[flows.EGRESS] = await self._ask(flow, judged_inside=judged_inside)
        except Exception as error:
            log.exception("a destination could not be judged", error=str(error))

    async def _ask(self, flow: http.HTTPFlow, *, judged_inside: bool) -> Decision:
        request, agent = flow.request, flows.principal(flow).agent
        destination = self._destination(flow.client_conn, (request.host, request.port))
        host, proven = flows.named_host(flow)
        literal = host != request.host and flows.is_address(request.host)
        addresses = (request.host,) if literal else tuple(sorted(set(destination.open.values())))
        asked = EgressRequest(host, request.port, request.method, addresses, agent, judged_inside)
        judgement = await self._guard.judge(asked, proven=proven)
        if judgement.allowed:
            destination.callers.add(_Caller(host, agent))
        return judgement.decision

    def _destination(self, client: Client, address: tuple[str, int]) -> _Destination:
        return self._clients.setdefault(client, {}).setdefault(address, _Destination())

    async def server_connect(self, data: ServerConnectionHookData) -> None:
        """Judge every address that would be dialled, and allow these and no others."""
        if data.server.error is not None:
            return
        try:
            await self._admit(data)
        except Exception as error:
            log.exception("a connection is refused after a failure", error=str(error))
            data.server.error = "Interlock could not judge the destination (internal_error)"
            self._refused(_Caller("unknown", "unknown"), 0, UNJUDGED)

    async def _admit(self, data: ServerConnectionHookData) -> None:
        assert data.server.address is not None
        host, port = data.server.address[:2]
        addresses: tuple[str, ...] = (host,) if flows.is_address(host) else ()
        callers = self._destination(data.client, (host, port)).callers
        if not callers:
            raise LookupError(f"nobody asked for {host}:{port}")
        for caller in sorted(callers):
            asked = EgressRequest(caller.host, port, None, addresses, caller.agent, judged_inside=True)
            decision, addresses = await self._guard.judge(asked)
            if decision.outcome is not Outcome.ALLOW:
                data.server.error = self._refused(caller, port, decision)
                return
        if addresses:
            data.server.address = (Judged(host, addresses), port)
        else:
            data.server.error = f"{host} leads to no address"

    def _refused(self, caller: _Caller, port: int, decision: Decision) -> str:
        context = Context(Principal(caller.agent), f"{caller.host}:{port}", egress=decision)
        return self._gate.refuse_egress("connection_refused", context).text

    def server_connected(self, data: ServerConnectionHookData) -> None:
        """Remember which address a connection leads to."""
        if data.server.address is not None and data.server.peername is not None:
            destination = self._destination(data.client, (str(data.server.address[0]), data.server.address[1]))
            destination.open[data.server.id] = str(data.server.peername[0])

    def server_disconnected(self, data: ServerConnectionHookData) -> None:
        """Forget a connection."""
        for destination in self._clients.get(data.client, {}).values():
            destination.open.pop(data.server.id, None)
