"""Who is calling: proxy credentials in, a principal on the flow, nothing of it upstream."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import structlog

from addons.http_flows import PRINCIPAL, answer_refused
from proxy import reasons
from proxy.model import Denial, Principal

if TYPE_CHECKING:
    from mitmproxy import http
    from mitmproxy.connection import Client

log = structlog.get_logger("interlock.identity")

HEADER = "proxy-authorization"


class Agents(Protocol):
    """Knows agents by their tokens."""

    def verify(self, name: str, token: str) -> bool:
        """Say whether `token` is the one `name` was given."""
        ...


class Identity:
    """Puts a Principal on every flow, or refuses it with 407."""

    def __init__(self, agents: Agents, *, default_agent: str, required: bool) -> None:
        self._agents = agents
        self._default = Principal(default_agent)
        self._required = required
        self._connections: WeakKeyDictionary[Client, Principal] = WeakKeyDictionary()

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Settle who opens a tunnel; everything inside it is theirs."""
        known = self._identify(flow)
        if known is not None:
            self._connections[flow.client_conn] = known

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Settle who sends a request."""
        tunnelled = self._connections.get(flow.client_conn)
        if tunnelled is not None:
            # Inside a tunnel the header is not addressed to us; it goes nowhere all the same.
            flow.request.headers.pop(HEADER, None)
            flow.metadata[PRINCIPAL] = tunnelled
        else:
            self._identify(flow)

    def _identify(self, flow: http.HTTPFlow) -> Principal | None:
        principal = None
        try:
            principal = self._principal(flow.request.headers.get_all(HEADER))
        except Exception as error:
            log.exception("cannot tell who is calling", error=str(error))
        flow.request.headers.pop(HEADER, None)
        flow.request.headers.pop("proxy-connection", None)
        if principal is None:
            _refuse(flow)
            flow.metadata[PRINCIPAL] = self._default
            return None
        flow.metadata[PRINCIPAL] = principal
        return principal

    def _principal(self, headers: list[str]) -> Principal | None:
        if not headers:
            return None if self._required else self._default
        name, token = _basic(headers[0])
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
