"""Who comes in to the operators' side: operators, by their tokens, and by no name that was not meant for it."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from starlette.types import Scope

    from proxy.core.interfaces import EventSink
    from proxy.identity.token_file import OperatorTokens

log = structlog.get_logger("interlock.operators")

WRONG_TOKEN_SECONDS: Final = 0.5
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::(?P<port>\d{1,5}))?")


class ApiError(Exception):
    """An answer that says no: an HTTP status, a stable code, and a sentence."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ListenerName:
    """The host and port a TCP listener was asked to have."""

    host: str
    port: int

    def fits(self, header: str) -> bool:
        """Return whether a Host header means this listener.

        A page on the web can point a name of its own at this machine (DNS
        rebinding), but not an address and not `localhost`.
        """
        match = _HOST.fullmatch(header)
        if match is None or int(match["port"] or 80) != self.port:
            return False
        name = match["name"].strip("[]").lower()
        return name in ("localhost", self.host.lower()) or _is_address(name)


class OperatorAuth:
    """Lets operators in.

    Wrong tokens are answered one at a time, each after a moment, and each is
    logged and recorded. `name` is None on a unix socket, which no name leads to.
    """

    def __init__(
        self,
        tokens: OperatorTokens,
        sink: EventSink,
        name: ListenerName | None = None,
        wrong_token_seconds: float | None = None,
    ) -> None:
        self._tokens = tokens
        self._sink = sink
        self._name = name
        self._pause = WRONG_TOKEN_SECONDS if wrong_token_seconds is None else wrong_token_seconds
        self._turn = asyncio.Lock()

    async def authenticate(self, scope: Scope) -> str:
        """Return the operator's name. Raises Refused for anybody else."""
        if self._name is not None and not self._name.fits(_only(scope, b"host")):
            raise ApiError(421, "wrong_host", "the Host header does not name this listener")
        token = _bearer(_only(scope, b"authorization"))
        try:
            operator = self._tokens.holder(token)
        except (ConfigError, OSError) as error:
            log.exception("the operators cannot be read", error=str(error))
            raise ApiError(503, "operators_unavailable", "the list of operators cannot be read") from error
        if operator is None:
            await self._turn_away(scope, token)
            raise ApiError(401, "operator_auth", "an operator's token is needed: Authorization: Bearer ilo_…")
        return operator

    async def _turn_away(self, scope: Scope, token: str) -> None:
        detail = {
            "via": "unix" if self._name is None else "tcp",
            "client": (scope.get("client") or [None])[0],
            "presented": _kind(token),
        }
        async with self._turn:
            log.warning("an operator's token was refused", **detail)
            self._sink.record_later(
                AuditEvent(
                    event_id=new_id(), kind="operator_refused", time=time.time(), reason="operator_auth", detail=detail
                )
            )
            await asyncio.sleep(self._pause)


def _only(scope: Scope, wanted: bytes) -> str:
    """Return the value of a header that is there once; nothing otherwise."""
    values = [value for name, value in scope["headers"] if name == wanted]
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _bearer(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _kind(token: str) -> str:
    """Say what was presented, without saying it."""
    if not token:
        return "nothing"
    return {"ilk_": "an agent's token", "ilo_": "an operator's token that is not valid"}.get(
        token[:4], "something else"
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
