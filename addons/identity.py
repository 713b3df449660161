"""Who is calling: reads the proxy credentials, puts a principal on the flow, and forwards no credentials."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import structlog

from addons.flow_state import answer_refused, server_name, state_of
from addons.header_fields import drop_fields
from proxy.core import reasons
from proxy.core.model import Context, Denial, Principal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mitmproxy import http
    from mitmproxy.connection import Client

    from proxy.gate.gate import Gate

log = structlog.get_logger("interlock.identity")

HEADER = "proxy-authorization"
_HOP_BY_HOP = (HEADER.encode(), b"proxy-connection")


class Agents(Protocol):
    """Knows agents by their tokens."""

    def verify(self, name: str, token: str) -> bool: ...


class _Tunnel(NamedTuple):
    """Who opened a tunnel, and the credentials that showed it."""

    principal: Principal
    credentials: list[str]


class Identity:
    """Puts a Principal on every flow, or refuses it with 407."""

    def __init__(self, agents: Agents, gate: Gate, *, default_agent: str, required: bool) -> None:
        self._agents = agents
        self._gate = gate
        self._default = Principal(default_agent)
        self._required = required
        self._tunnels: WeakKeyDictionary[Client, _Tunnel] = WeakKeyDictionary()

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Identify the agent that opens a tunnel; everything inside it is that agent's."""
        credentials = flow.request.headers.get_all(HEADER)
        principal = self._identify(flow, credentials, self._default)
        if principal is not None:
            self._tunnels[flow.client_conn] = _Tunnel(principal, credentials)

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Identify the agent that sends a request."""
        tunnel = self._tunnels.get(flow.client_conn)
        if tunnel is not None:
            # Checked again for each request: an agent's token may have been revoked since the tunnel was opened. A
            # Proxy-Authorization header inside the tunnel is the server's to read, but is dropped all the same.
            self._identify(flow, tunnel.credentials, Principal(tunnel.principal.agent))
        else:
            self._identify(flow, flow.request.headers.get_all(HEADER), self._default)

    def _identify(self, flow: http.HTTPFlow, credentials: list[str], otherwise: Principal) -> Principal | None:
        """Put the agent that the credentials name on the flow, or refuse the flow in the name of `otherwise`."""
        state = state_of(flow)
        state.principal = otherwise  # first, so that a failure below leaves a caller to record
        state.credentials = credentials
        # Dropped before anything can fail: these are hop-by-hop, and a server must not see an agent's token.
        drop_fields(flow.request.headers, _HOP_BY_HOP)
        principal = None
        try:
            principal = self._principal(credentials)
        except Exception as error:
            log.exception("an agent cannot be identified", error=str(error))
        if principal is None:
            _refuse(flow)
            self._gate.recorder.record_refusal(
                "request_refused", "agent_auth", Context(otherwise, server_name(flow)), status=407
            )
            return None
        state.principal = principal
        return principal

    def is_still(self, principal: Principal, credentials: Sequence[str]) -> bool:
        """Return whether these credentials still name the same agent."""
        now = self._principal(credentials)
        return now is principal or now == principal

    def _principal(self, headers: Sequence[str]) -> Principal | None:
        if not headers:
            return None if self._required else self._default
        name, token = _basic(headers[0])
        # Two headers are ambiguous, so neither counts.
        if len(headers) == 1 and self._agents.verify(name, token):
            return Principal(name, authenticated=True)
        return None


def _basic(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, token = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, token


def _refuse(flow: http.HTTPFlow) -> None:
    text = reasons.explain("agent_auth", "the request")
    answer_refused(flow, 407, Denial("agent_auth", text))
    assert flow.response is not None
    flow.response.headers["Proxy-Authenticate"] = 'Basic realm="interlock"'
