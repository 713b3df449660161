"""Has the guard judge every destination before anything is forwarded, and pins what is dialled to its decision.

Judged are each tunnel, each request and each connection: by name, by the address that is dialled, and again on a
connection that stays open once the policy has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import structlog

from addons import flow_state as flows
from addons.mitm.pinned_dial import PinnedHost
from proxy.core.model import Context, Decision, EgressRequest, Outcome, Principal
from proxy.egress.guard import UNJUDGED, EgressGuard

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mitmproxy import http
    from mitmproxy.connection import Client
    from mitmproxy.proxy.server_hooks import ServerConnectionHookData

    from proxy.core.identity import Identity
    from proxy.gate.gate import Gate

log = structlog.get_logger("interlock.egress")
# In a CONNECT of `interlock confine` and of sandboxes: the ports of this machine that the agent may reach.
CONFINED = "Interlock-Confined"


class _Caller(NamedTuple):
    host: str
    agent: str
    identity: Identity | None = None


class _Claim(NamedTuple):
    """All of a request that the guard decides on. The same claim under the same policy has the same decision."""

    host: str
    proven: bool
    method: str
    addresses: tuple[str, ...]
    agent: str
    identity: Identity | None = None


class _Judged(NamedTuple):
    claim: _Claim
    decision: Decision


@dataclass
class _Destination:
    """One host and port as seen from one client: who may go there, and the connections that are open."""

    callers: set[_Caller] = field(default_factory=set)
    open: dict[str, str] = field(default_factory=dict)
    judged: _Judged | None = None
    """The last request's decision. Not stored where a name was resolved: DNS may answer otherwise next time."""


class Egress:
    """The addon that has destinations judged."""

    def __init__(self, guard: EgressGuard, gate: Gate) -> None:
        self._guard = guard
        self._gate = gate
        self._clients: WeakKeyDictionary[Client, dict[tuple[str, int], _Destination]] = WeakKeyDictionary()
        self._confined: WeakKeyDictionary[Client, tuple[int, ...]] = WeakKeyDictionary()

    async def http_connect(self, flow: http.HTTPFlow) -> None:
        """Refuse a tunnel to where nothing may go."""
        if flow.response is not None:
            return
        if (said := flow.request.headers.get(CONFINED)) is not None:
            # Whoever says so only gets less: there is nothing to prove.
            self._confined[flow.client_conn] = tuple(int(port) for port in said.split(",") if port.strip().isdigit())
        await self._judge(flow, judged_inside=True)
        if flows.may_leave(flow):
            return
        try:
            denial = self._gate.plain_requests.refuse_egress("connection_refused", flows.context(flow))
            flows.answer_refused(flow, 403, denial)
        except Exception as error:
            log.exception("a tunnel is refused after a failure", error=str(error))
            flows.answer(flow, 403, b"")

    def requestheaders(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Judge where a request goes; the gate answers for it."""
        if flow.response is not None:
            return None
        known = self._known(flow)
        if known is None:
            return self._judge(flow)
        flows.state_of(flow).egress = known
        return None

    def request(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Judge again where the policy changed while the body came."""
        return self._judge_anew(flow) if flow.response is None else None

    def websocket_message(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Judge again where the policy changed since the socket was opened."""
        return self._judge_anew(flow)

    def _judge_anew(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        return self._judge(flow) if flows.state_of(flow).egress.policy_version != self._guard.policy().version else None

    def _known(self, flow: http.HTTPFlow) -> Decision | None:
        """Return the decision on the same claim on this connection, if the policy is still the same."""
        destination = self._clients.get(flow.client_conn, {}).get((flow.request.host, flow.request.port))
        judged = destination.judged if destination is not None else None
        if destination is None or judged is None or judged.decision.policy_version != self._guard.policy().version:
            return None
        return judged.decision if judged.claim == _claim(flow, destination) else None

    def holds(self, client: Client, address: tuple[str, int], decision: Decision) -> bool:
        """Return whether the same claim on this connection would get the same decision without being judged anew."""
        destination = self._clients.get(client, {}).get(address)
        judged = destination.judged if destination is not None else None
        if destination is None or judged is None or judged.decision is not decision:
            return False
        if decision.policy_version != self._guard.policy().version:
            return False
        addresses = judged.claim.addresses
        return addresses == (address[0],) or addresses == tuple(sorted(set(destination.open.values())))

    async def _judge(self, flow: http.HTTPFlow, *, judged_inside: bool = False) -> None:
        flows.state_of(flow).egress = UNJUDGED  # a refusal, which stays where the guard fails
        try:
            flows.state_of(flow).egress = await self._ask(flow, judged_inside=judged_inside)
        except Exception as error:
            log.exception("a destination could not be judged", error=str(error))

    async def _ask(self, flow: http.HTTPFlow, *, judged_inside: bool) -> Decision:
        destination = self._destination(flow.client_conn, (flow.request.host, flow.request.port))
        claim = _claim(flow, destination)
        request = EgressRequest(
            claim.host,
            flow.request.port,
            claim.method,
            claim.addresses,
            claim.agent,
            judged_inside,
            confined=self._confined.get(flow.client_conn),
            identity=claim.identity,
        )
        judgement = await self._guard.judge(request, proven=claim.proven)
        if judgement.allowed:
            destination.callers.add(_Caller(claim.host, claim.agent, claim.identity))
            if claim.proven and claim.addresses and not judged_inside:  # so no name was resolved
                destination.judged = _Judged(claim, judgement.decision)
        return judgement.decision

    def _destination(self, client: Client, address: tuple[str, int]) -> _Destination:
        return self._clients.setdefault(client, {}).setdefault(address, _Destination())

    async def server_connect(self, data: ServerConnectionHookData) -> None:
        """Judge every address that would be dialled, and pin the connection to these."""
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
            raise LookupError(f"no request was judged for {host}:{port}")
        # One connection may carry the requests of several names and agents: it is opened if all of them may use it,
        # to the addresses that are left after the last.
        for caller in sorted(callers, key=lambda caller: caller[:2]):
            confined = self._confined.get(data.client)
            request = EgressRequest(
                *(caller.host, port, None, addresses, caller.agent),
                judged_inside=True,
                confined=confined,
                identity=caller.identity,
            )
            decision, addresses = await self._guard.judge(request)
            if decision.outcome is not Outcome.ALLOW:
                data.server.error = self._refused(caller, port, decision)
                return
        if addresses:
            data.server.address = (PinnedHost(host, addresses), port)
        else:
            data.server.error = f"{host} leads to no address"

    def _refused(self, caller: _Caller, port: int, decision: Decision) -> str:
        context = Context(Principal(caller.agent, identity=caller.identity), f"{caller.host}:{port}", egress=decision)
        return self._gate.plain_requests.refuse_egress("connection_refused", context).text

    def server_connected(self, data: ServerConnectionHookData) -> None:
        """Store the address that a connection has, for the requests that will reuse it."""
        if data.server.address is not None and data.server.peername is not None:
            destination = self._destination(data.client, (str(data.server.address[0]), data.server.address[1]))
            destination.open[data.server.id] = str(data.server.peername[0])

    def server_disconnected(self, data: ServerConnectionHookData) -> None:
        for destination in self._clients.get(data.client, {}).values():
            destination.open.pop(data.server.id, None)


def _claim(flow: http.HTTPFlow, destination: _Destination) -> _Claim:
    request = flow.request
    host, proven = flows.named_host(flow)
    literal = host != request.host and flows.is_address(request.host)
    # A request may reuse any open connection to its host, so it is judged by the addresses of all of them.
    addresses = (request.host,) if literal else tuple(sorted(set(destination.open.values())))
    caller = flows.principal(flow)
    return _Claim(host, proven, request.method, addresses, caller.agent, caller.identity)
