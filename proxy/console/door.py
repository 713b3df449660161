"""How every way of logging in ends: with a session that is recorded first, or with a slow and recorded refusal."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Final

import structlog

from proxy.console.security import RefusedError
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent

if TYPE_CHECKING:
    from typing import Literal

    from starlette.requests import Request
    from starlette.responses import Response

    from proxy.console.security import Site
    from proxy.console.sessions import Sessions
    from proxy.core.interfaces import EventSink

log = structlog.get_logger("interlock.console")

WRONG_SECONDS: Final = 0.5
MAX_WAITING: Final = 20


class Door:
    """Lets operators in, and nobody else."""

    def __init__(self, site: Site, sessions: Sessions, sink: EventSink) -> None:
        self._site = site
        self._sessions = sessions
        self._sink = sink
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def admit(self, request: Request, response: Response, operator: str, session: str, way: str) -> Response:
        """Return `response` with the cookie of a session. Raises AuditUnavailableError: nobody gets in unrecorded."""
        try:
            await self._sink.record(_event("operator_login", operator, request, way))
        except BaseException:
            self._sessions.end(session)
            raise
        self.set_session(response, session)
        return response

    def set_session(self, response: Response, secret: str) -> None:
        self._set(response, self._site.cookie, secret, None, "strict", self._site.base(secret))

    def drop_session(self, response: Response, base: str) -> None:
        self._set(response, self._site.cookie, "", 0, "strict", base)

    def set_ticket(self, response: Response, way: str, age: int, same_site: Literal["lax", "strict"]) -> str:
        """Give the browser a secret that its next step of a login must come with; return the secret."""
        secret = secrets.token_urlsafe(32)
        self._set(response, self._ticket(way), secret, age, same_site)
        return secret

    def ticket(self, request: Request, way: str) -> str:
        return request.cookies.get(self._ticket(way), "")

    def drop_ticket(self, response: Response, way: str) -> None:
        self._set(response, self._ticket(way), "", 0, "strict")

    def _ticket(self, way: str) -> str:
        return f"{self._site.cookie}-{way}"

    def _set(
        self,
        response: Response,
        name: str,
        value: str,
        age: int | None,
        same: Literal["lax", "strict"],
        base: str = "",
    ) -> None:
        secure, path = self._site.secure, f"{base}/"
        response.set_cookie(name, value, max_age=age, path=path, secure=secure, httponly=True, samesite=same)

    async def refuse(self, request: Request, presented: str) -> None:
        """Record a wrong login and wait. Raises RefusedError where too many wait already."""
        if self._waiting >= MAX_WAITING:
            raise RefusedError(429, "too_many_logins", "Too many wrong logins. Try again in a minute.")
        self._waiting += 1
        try:
            # One at a time: guessing is slow however many connections are open, and a right token never waits.
            async with self._turn:
                log.warning("console login refused", presented=presented)
                self._sink.record_later(_event("operator_refused", None, request, presented))
                await asyncio.sleep(WRONG_SECONDS)
        finally:
            self._waiting -= 1


def _event(kind: str, operator: str | None, request: Request, presented: str) -> AuditEvent:
    client = request.client.host if request.client else None
    detail = {"via": "console", "client": client, "presented": presented}
    if operator is not None:
        detail["operator"] = operator
    reason = "operator_auth" if operator is None else None
    return AuditEvent(event_id=new_id(), kind=kind, time=time.time(), reason=reason, detail=detail)
