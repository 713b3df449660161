"""Who is calling: reads the proxy credentials, puts a principal on the flow, and forwards no credentials."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import structlog

from addons.flow_state import answer_refused, server_name, state_of
from addons.header_fields import drop_fields
from addons.mitm.client_certificates import is_outermost
from proxy.core import reasons
from proxy.core.model import Context, Denial, Principal
from proxy.errors import CredentialError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from cryptography import x509
    from mitmproxy import http
    from mitmproxy.connection import Client
    from mitmproxy.tls import TlsData

    from proxy.gate.gate import Gate

log = structlog.get_logger("interlock.identity")

HEADER = "proxy-authorization"
_HOP_BY_HOP = (HEADER.encode(), b"proxy-connection")
TOKEN_USER: Final = "jwt"  # noqa: S105  a user name
"""The user name before a token of another issuer, for clients whose proxy URL has room for a password alone."""


class Agents(Protocol):
    """Knows agents by their tokens."""

    def verify(self, name: str, token: str) -> bool: ...


class Verifier(Protocol):
    """Knows agents by tokens of other issuers, and by certificates. Raises CredentialError."""

    def known(self, token: str) -> Principal | None: ...
    async def verify(self, token: str) -> Principal: ...
    def verify_certificate(self, chain: Sequence[x509.Certificate]) -> Principal: ...


class _Tunnel(NamedTuple):
    """Who opened a tunnel, and the credentials that showed it."""

    principal: Principal
    credentials: list[str]


class Identity:
    """Puts a Principal on every flow, or refuses it with 407."""

    def __init__(
        self,
        agents: Agents,
        gate: Gate,
        *,
        default_agent: str,
        required: bool,
        verifier: Verifier | None = None,
    ) -> None:
        self._agents = agents
        self._gate = gate
        self._default = Principal(default_agent)
        self._required = required
        self._verifier = verifier
        self._tunnels: WeakKeyDictionary[Client, _Tunnel] = WeakKeyDictionary()
        self._chains: WeakKeyDictionary[Client, tuple[x509.Certificate, ...]] = WeakKeyDictionary()

    def tls_established_client(self, data: TlsData) -> None:
        """Keep the certificates that a client showed to the proxy itself; those inside a tunnel are the server's."""
        client = data.context.client
        if self._verifier is not None and is_outermost(data.context) and client.certificate_list:
            self._chains[client] = tuple(one.to_cryptography() for one in client.certificate_list)

    def http_connect(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Identify the agent that opens a tunnel; everything inside it is that agent's."""
        credentials = flow.request.headers.get_all(HEADER)

        def opened(principal: Principal) -> None:
            self._tunnels[flow.client_conn] = _Tunnel(principal, credentials)

        return self._identify(flow, credentials, self._default, opened)

    def requestheaders(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Identify the agent that sends a request."""
        tunnel = self._tunnels.get(flow.client_conn)
        if tunnel is not None:
            # Checked again for each request: an agent's token may have been revoked since the tunnel was opened. A
            # Proxy-Authorization header inside the tunnel is the server's to read, but is dropped all the same.
            return self._identify(flow, tunnel.credentials, Principal(tunnel.principal.agent))
        return self._identify(flow, flow.request.headers.get_all(HEADER), self._default)

    def _identify(
        self,
        flow: http.HTTPFlow,
        credentials: list[str],
        otherwise: Principal,
        then: Callable[[Principal], None] = lambda _: None,
    ) -> Awaitable[None] | None:
        """Put the agent that the credentials name on the flow, or refuse the flow in the name of `otherwise`."""
        state = state_of(flow)
        state.principal = otherwise  # first, so that a failure below leaves a caller to record
        state.credentials = credentials
        # Dropped before anything can fail: these are hop-by-hop, and a server must not see an agent's token.
        drop_fields(flow.request.headers, _HOP_BY_HOP)
        token = _token(credentials)
        if token is not None and self._verifier is not None and self._verifier.known(token) is None:
            return self._wait(flow, self._verifier.verify(token), then)
        principal, refusal = None, CredentialError("agent_auth", "")
        try:
            principal = self._principal(credentials, flow.client_conn)
        except CredentialError as error:
            refusal = error
        except Exception as error:
            log.exception("an agent cannot be identified", error=str(error))
        self._settle(flow, principal, refusal, then)
        return None

    async def _wait(
        self, flow: http.HTTPFlow, verification: Awaitable[Principal], then: Callable[[Principal], None]
    ) -> None:
        principal, refusal = None, CredentialError("agent_auth", "")
        try:
            principal = await verification
        except CredentialError as error:
            refusal = error
        except Exception as error:
            log.exception("an agent cannot be identified", error=str(error))
        self._settle(flow, principal, refusal, then)

    def _settle(
        self,
        flow: http.HTTPFlow,
        principal: Principal | None,
        refusal: CredentialError,
        then: Callable[[Principal], None],
    ) -> None:
        state = state_of(flow)
        if principal is not None:
            state.principal = principal
            then(principal)
            return
        assert state.principal is not None
        _refuse(flow, refusal, with_tokens=self._verifier is not None)
        detail = {"why": refusal.detail} if refusal.detail else {}
        self._gate.recorder.record_refusal(
            "request_refused", refusal.reason, Context(state.principal, server_name(flow)), status=407, **detail
        )

    def is_still(self, principal: Principal, credentials: Sequence[str], client: Client | None = None) -> bool:
        """Return whether these credentials still name the same agent. Waits for nothing: in doubt they do not."""
        try:
            now = self._principal(credentials, client)
        except CredentialError:
            return False
        return now is principal or now == principal

    def _principal(self, headers: Sequence[str], client: Client | None) -> Principal | None:
        """Return who is named, as far as that can be said without waiting. Raises CredentialError."""
        if not headers:
            chain = self._chains.get(client) if client is not None else None
            if chain is not None and self._verifier is not None:
                return self._verifier.verify_certificate(chain)
            return None if self._required else self._default
        if (token := _token(headers)) is not None and self._verifier is not None:
            return self._verifier.known(token)
        name, token = _basic(headers[0])
        # Two headers are ambiguous, so neither counts.
        if len(headers) == 1 and self._agents.verify(name, token):
            return Principal(name, authenticated=True)
        return None


def _token(headers: Sequence[str]) -> str | None:
    """Return the token of another issuer that a header has: as a bearer's, or as a password."""
    if len(headers) != 1:
        return None
    scheme, _, given = headers[0].partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    name, token = _basic(headers[0])
    return token if name == TOKEN_USER and token.count(".") >= 2 else None


def _basic(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, token = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, token


def _refuse(flow: http.HTTPFlow, refusal: CredentialError, *, with_tokens: bool) -> None:
    reason, said = reasons.REASONS[refusal.reason], refusal.detail
    why = f"{reason.meaning} ({said[:1].upper()}{said[1:]}.)" if said else ""
    text = reasons.explain(refusal.reason, "the request", why)
    answer_refused(flow, 407, Denial(refusal.reason, text, retryable=reason.retryable))
    assert flow.response is not None
    flow.response.headers["Proxy-Authenticate"] = 'Basic realm="interlock"'
    if with_tokens:
        flow.response.headers.add("Proxy-Authenticate", 'Bearer realm="interlock"')
        # A client that gets a new token has no way to show it in a tunnel that is open.
        flow.response.headers["Connection"] = "close"
