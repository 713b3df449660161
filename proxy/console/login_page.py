"""Login and logout: a one-time link or an operator's token for a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from proxy.console.context import action
from proxy.console.security import NO_STORE, RefusedError, read_form
from proxy.core.approvals import Role
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from proxy.console.context import Console, NavEntry

log = structlog.get_logger("interlock.console")

HOME: Final = "/calls"


class LoginPage:
    nav: NavEntry | None = None

    def __init__(self, console: Console) -> None:
        self._console = console

    def routes(self) -> list[Route]:
        return [
            Route("/login", self.show, methods=["GET"]),
            Route("/login", self.log_in, methods=["POST"]),
            action("/logout", self.log_out, Role.VIEWER),
        ]

    async def show(self, request: Request) -> Response:
        if request.state.session is not None:
            return see_other(HOME)
        return login_form(self._console, request)

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
            await self._console.door.refuse(request, "a one-time link" if link else _kind(secret))
            why = (
                "This link was used or is too old. Make another with: interlock console"
                if link
                else ("This is not the token of an operator.")
            )
            return login_form(self._console, request, why, 403)
        response = see_other(self._console.site.base(session) + next_path(form.get("next", "")))
        return await self._console.door.admit(request, response, operator, session, "link" if link else "token")

    async def log_out(self, request: Request, _: Mapping[str, str]) -> Response:
        self._console.sessions.end(request.state.secret)
        response = see_other("/login?ended=1")
        self._console.door.drop_session(response, request.state.base)
        return response


def login_form(console: Console, request: Request, problem: str = "", status: int = 200) -> Response:
    """Return the page with every way to log in, and what went wrong with the last one."""
    values = {
        "problem": problem,
        "next": next_path(request.query_params.get("next", "")),
        "oidc": console.oidc is not None,
    }
    return console.renderer.page(request, "login.html", values, status)


def see_other(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303, headers=dict(NO_STORE))


def next_path(path: str) -> str:
    """Return a path of this console to go on to. Whatever could lead elsewhere leads home."""
    plain = path.startswith("/") and not path.startswith(("//", "/\\", "/login")) and path.isprintable()
    return path if plain and "\\" not in path and len(path) <= 1000 else HOME


def _kind(secret: str) -> str:
    kinds = {"": "nothing", "ilk_": "an agent's token", "ilo_": "an operator's token that is not valid"}
    return kinds.get(secret[:4], "something else")
