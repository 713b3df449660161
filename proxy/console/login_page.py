"""Login and logout: a one-time link or an operator's token for a session."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import structlog
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from proxy.console.context import action
from proxy.console.security import NO_STORE, RefusedError, read_form
from proxy.core.approvals import Role
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from proxy.console.context import Console, NavEntry

log = structlog.get_logger("interlock.console")

WRONG_SECONDS: Final = 0.5
MAX_WAITING: Final = 20
HOME: Final = "/calls"


class LoginPage:
    nav: NavEntry | None = None

    def __init__(self, console: Console) -> None:
        self._console = console
        self._turn = asyncio.Lock()
        self._waiting = 0

    def routes(self) -> list[Route]:
        return [
            Route("/login", self.show, methods=["GET"]),
            Route("/login", self.log_in, methods=["POST"]),
            action("/logout", self.log_out, Role.VIEWER),
        ]

    async def show(self, request: Request) -> Response:
        if request.state.session is not None:
            return see_other(HOME)
        return self._page(request)

    async def log_in(self, request: Request) -> Response:
        # The origin was checked, as of every POST: no other site can log an operator in as somebody else.
        form = await read_form(request)
        secret, link = form.get("token", "").strip(), form.get("link", "").strip()
        try:
            operator = self._console.links.take(link) if link else self._console.operators.holder(secret)
            session = self._console.sessions.open(operator) if operator is not None else None
        except (ConfigError, OSError) as error:
            log.exception("cannot read the operators", error=str(error))
            raise RefusedError(503, "operators_unavailable", "The operators cannot be read; see the log.") from error
        if operator is None or session is None:
            await self._refuse(request, "a one-time link" if link else _kind(secret))
            why = (
                "This link was used or is too old. Make another with: interlock console"
                if link
                else ("This is not the token of an operator.")
            )
            return self._page(request, why, 403)
        # Recorded first: nobody is logged in without a record of it.
        await self._console.sink.record(_event("operator_login", operator, request, "link" if link else "token"))
        response = see_other(_next(form.get("next", "")))
        self._set_cookie(response, session)
        return response

    async def log_out(self, request: Request, _: Mapping[str, str]) -> Response:
        self._console.sessions.end(request.cookies.get(self._console.site.cookie, ""))
        response = see_other("/login")
        self._set_cookie(response, "", 0)
        return response

    def _set_cookie(self, response: Response, value: str, age: int | None = None) -> None:
        site = self._console.site
        response.set_cookie(
            site.cookie, value, max_age=age, path="/", secure=site.secure, httponly=True, samesite="strict"
        )

    def _page(self, request: Request, problem: str = "", status: int = 200) -> Response:
        values = {"problem": problem, "next": _next(request.query_params.get("next", ""))}
        return self._console.renderer.page(request, "login.html", values, status)

    async def _refuse(self, request: Request, presented: str) -> None:
        """Record a wrong login and wait. Raises RefusedError where too many wait already."""
        if self._waiting >= MAX_WAITING:
            raise RefusedError(429, "too_many_logins", "Too many wrong logins. Try again in a minute.")
        self._waiting += 1
        try:
            # One at a time: guessing is slow however many connections are open, and a right token never waits.
            async with self._turn:
                log.warning("console login refused", presented=presented)
                self._console.sink.record_later(_event("operator_refused", None, request, presented))
                await asyncio.sleep(WRONG_SECONDS)
        finally:
            self._waiting -= 1


def see_other(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303, headers=dict(NO_STORE))


def _next(path: str) -> str:
    """Return a path of this console to go on to. Whatever could lead elsewhere leads home."""
    plain = path.startswith("/") and not path.startswith(("//", "/\\", "/login")) and path.isprintable()
    return path if plain and "\\" not in path and len(path) <= 1000 else HOME


def _kind(secret: str) -> str:
    kinds = {"": "nothing", "ilk_": "an agent's token", "ilo_": "an operator's token that is not valid"}
    return kinds.get(secret[:4], "something else")


def _event(kind: str, operator: str | None, request: Request, presented: str) -> AuditEvent:
    client = request.client.host if request.client else None
    detail = {"via": "console", "client": client, "presented": presented}
    if operator is not None:
        detail["operator"] = operator
    reason = "operator_auth" if operator is None else None
    return AuditEvent(event_id=new_id(), kind=kind, time=time.time(), reason=reason, detail=detail)
