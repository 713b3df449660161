"""Login by OpenID Connect: to the issuer, and back.

The issuer's site sends the browser back, so the request has no cookie that is SameSite=Strict. The ticket of the login
under way is Lax for that reason; it opens nothing but this login, once. The answer is a page, not a redirect: what
follows a redirect would still count as the issuer's doing, and the new session's cookie would not be sent with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import structlog
from starlette.routing import Route

from proxy.console.challenges import Challenges
from proxy.console.id_token import OidcError
from proxy.console.login_page import login_form, next_path, see_other
from proxy.console.oidc import CALLBACK, Attempt, IssuerDownError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from proxy.console.context import Console, NavEntry
    from proxy.console.oidc import OidcClient

log = structlog.get_logger("interlock.console")

SECONDS: Final = 600
_WAY: Final = "oidc"


class OidcPage:
    nav: NavEntry | None = None

    def __init__(self, console: Console) -> None:
        self._console = console
        self._attempts: Challenges[Attempt] = Challenges(SECONDS)

    def routes(self) -> list[Route]:
        client = self._console.oidc
        if client is None:
            return []

        async def begin(request: Request) -> Response:
            return await self._begin(request, client)

        async def finish(request: Request) -> Response:
            return await self._finish(request, client)

        return [Route("/login/oidc", begin, methods=["GET"]), Route(CALLBACK, finish, methods=["GET"])]

    async def _begin(self, request: Request, client: OidcClient) -> Response:
        to = next_path(request.query_params.get("next", ""))
        url = self._console.site.url
        if request.state.origin != url:
            # The issuer leads back to that URL, and the ticket must be there.
            return see_other(f"{url}/login/oidc?next={quote(to)}")
        try:
            attempt, address = await client.begin(to)
        except OidcError as error:
            return self._failed(request, error)
        response = see_other(address)
        self._attempts.put(self._console.door.set_ticket(response, _WAY, SECONDS, "lax"), attempt)
        return response

    async def _finish(self, request: Request, client: OidcClient) -> Response:
        try:
            attempt, query = self._take(request)
            person = await client.finish(attempt, query)
        except OidcError as error:
            await self._console.door.refuse(request, f"OIDC: {error}")
            return self._failed(request, error)
        session = self._console.sessions.open(person.name, person.role, person.runs)
        assert session is not None
        response = self._console.renderer.page(
            request, "signed_in.html", {"next": self._console.site.base(session) + attempt.next}
        )
        self._console.door.drop_ticket(response, _WAY)
        return await self._console.door.admit(request, response, person.name, session, _WAY)

    def _take(self, request: Request) -> tuple[Attempt, dict[str, str]]:
        attempt = self._attempts.take(self._console.door.ticket(request, _WAY))
        pairs = request.query_params.multi_items()
        if attempt is None or len(dict(pairs)) != len(pairs):
            raise OidcError("it took too long, was done already, or began in another browser")
        return attempt, dict(pairs)

    def _failed(self, request: Request, error: OidcError) -> Response:
        log.warning("OIDC sign-in failed", error=str(error), cause=repr(error.__cause__) if error.__cause__ else None)
        status = 503 if isinstance(error, IssuerDownError) else 403
        response = login_form(self._console, request, f"Signing in did not work: {error}.", status)
        self._console.door.drop_ticket(response, _WAY)
        return response
