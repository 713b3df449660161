"""Authentication of the admin API: an operator's token, and on TCP the right Host header."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from proxy.core.approvals import Operator
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.errors import ConfigError, CredentialError

if TYPE_CHECKING:
    from starlette.types import Scope

    from proxy.core.approvals import Role
    from proxy.core.interfaces import EventSink
    from proxy.identity.operator_verifier import OperatorVerifier
    from proxy.identity.token_file import OperatorTokens

log = structlog.get_logger("interlock.operators")

WRONG_TOKEN_SECONDS: Final = 0.5
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::(?P<port>\d{1,5}))?")


class ApiError(Exception):
    """An error response: an HTTP status, a stable code, and a sentence."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ListenerName:
    """The configured host and port of a TCP listener."""

    host: str
    port: int

    def fits(self, header: str) -> bool:
        """Return whether a Host header means this listener."""
        # DNS rebinding: a web page can point its own name at this machine, so that an operator's browser sends its
        # requests here. It cannot do so with an address or `localhost`.
        match = _HOST.fullmatch(header)
        if match is None or int(match["port"] or 80) != self.port:
            return False
        name = match["name"].strip("[]").lower()
        return name in ("localhost", self.host.lower()) or _is_address(name)


class OperatorAuth:
    """Authenticates operators. `name` is None on the unix socket, which has no Host."""

    def __init__(
        self,
        tokens: OperatorTokens,
        sink: EventSink,
        name: ListenerName | None = None,
        wrong_token_seconds: float | None = None,
        verifier: OperatorVerifier | None = None,
    ) -> None:
        self._tokens = tokens
        self._verifier = verifier
        self._sink = sink
        self._name = name
        self._pause = WRONG_TOKEN_SECONDS if wrong_token_seconds is None else wrong_token_seconds
        self._turn = asyncio.Lock()

    async def authenticate(self, scope: Scope) -> Operator:
        """Return the operator. Raises ApiError without a valid token."""
        if self._name is not None and not self._name.fits(_only(scope, b"host")):
            raise ApiError(421, "wrong_host", "the Host header does not name this listener")
        scheme, _, given = _only(scope, b"authorization").partition(" ")
        token = given.strip() if scheme.lower() == "bearer" else ""
        try:
            operator = self._tokens.operator(token)
        except (ConfigError, OSError) as error:
            log.exception("cannot read the operators", error=str(error))
            raise ApiError(503, "operators_unavailable", "the operators cannot be read; see the proxy's log") from error
        if operator is None and self._verifier is not None and token.count(".") == 2:
            operator = await self._by_issuer(self._verifier, token)
        if operator is None:
            await self._reject(scope, token)
            raise ApiError(401, "operator_auth", "an operator's token is needed: Authorization: Bearer ilo_…")
        return operator

    async def _by_issuer(self, verifier: OperatorVerifier, token: str) -> Operator | None:
        """Return the operator that an issuer's token names; as in the console, with the lower of two roles."""
        try:
            found = await verifier.operator(token)
        except CredentialError as error:
            log.warning("an operator's token is refused", reason=error.reason, why=error.detail)
            return None
        own = self._tokens.named(found.name)
        if own is None:
            return found
        role = found.role if own.role.includes(found.role) else own.role
        return Operator(found.name, role, own.agents | found.agents)

    async def _reject(self, scope: Scope, token: str) -> None:
        detail = {
            "via": "unix" if self._name is None else "tcp",
            "client": (scope.get("client") or [None])[0],
            "presented": _kind(token),
        }
        # One wrong token at a time, each with a pause: guessing is slow however many connections are open, and
        # operators with a right token never wait for the lock.
        async with self._turn:
            log.warning("operator token refused", **detail)
            now, reason = time.time(), "operator_auth"
            event = AuditEvent(event_id=new_id(), kind="operator_refused", time=now, reason=reason, detail=detail)
            self._sink.record_later(event)
            await asyncio.sleep(self._pause)


def check_role(operator: Operator, needed: Role) -> None:
    """Raise ApiError where an operator may not do what only `needed` may."""
    if not operator.role.includes(needed):
        raise ApiError(403, "role_required", f"{operator.name} is {_a(operator.role)}; this needs {_a(needed)}")


def _a(role: Role) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"


def _only(scope: Scope, wanted: bytes) -> str:
    """Return the value of a header; an empty string if it is missing or repeated."""
    # Two Host or Authorization headers: whichever we took, another program on the way may have read the other one.
    values = [value for name, value in scope["headers"] if name == wanted]
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _kind(token: str) -> str:
    # For the audit log: what kind of credential was presented, never the credential.
    kinds = {"": "nothing", "ilk_": "an agent's token", "ilo_": "an operator's token that is not valid"}
    return kinds.get(token[:4], "something else")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
