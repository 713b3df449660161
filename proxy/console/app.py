"""The console's application: what every request passes before a page sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.console.agents_page import AgentsPage
from proxy.console.approvals_page import ApprovalsPage
from proxy.console.audit_page import AuditPage
from proxy.console.call_page import CallPage
from proxy.console.calls_page import CallsPage
from proxy.console.context import Me
from proxy.console.credentials_page import CredentialsPage
from proxy.console.health_page import HealthPage
from proxy.console.login_page import LoginPage, see_other
from proxy.console.oidc_page import OidcPage
from proxy.console.overview_page import OverviewPage
from proxy.console.passkey_page import PasskeyPage
from proxy.console.policy_page import PolicyPage
from proxy.console.rule_proposals_page import RuleProposalsPage
from proxy.console.security import HEADERS, NO_STORE, RefusedError, check_origin, split_place
from proxy.console.servers_page import ServersPage
from proxy.errors import AuditUnavailableError, ConfigError, ReviewError, StoreUnavailableError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from proxy.console.context import Console, Page
    from proxy.console.render import Assets

log = structlog.get_logger("interlock.console")

# The order is that of the navigation.
PAGES: Final = (
    *(OverviewPage, CallsPage, CallPage, ApprovalsPage, AgentsPage, ServersPage, CredentialsPage),
    *(PolicyPage, RuleProposalsPage, AuditPage, HealthPage, LoginPage, PasskeyPage, OidcPage),
)
_METHODS: Final = frozenset({"GET", "HEAD", "POST"})
_PUBLIC: Final = ("/login", "/static/", "/favicon.ico")
# What a browser does by itself while a page is open: no sign of a person.
_UNATTENDED: Final = ("/stream", "/pending")


class ConsoleApp:
    """The application. Nothing but the login is answered without a session, not even that a path does not exist."""

    def __init__(self, console: Console, assets: Assets) -> None:
        self._console = console
        pages: list[Page] = [page(console) for page in PAGES]
        self._nav = [page.nav for page in pages if page.nav is not None]

        async def static(request: Request) -> Response:
            return assets.answer(request.path_params["version"], request.path_params["name"])

        routes = [
            Route("/static/{version}/{name}", static, methods=["GET"]),
            Route("/favicon.ico", lambda _: Response(status_code=204), methods=["GET"]),
            *(route for page in pages for route in page.routes()),
        ]
        self._app = Starlette(routes=routes, exception_handlers=dict.fromkeys(_HANDLED, self._refuse))
        self.routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the console speaks HTTP, not {scope['type']}")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                own = [
                    (name, _placed(base, value) if name == b"location" else value) for name, value in message["headers"]
                ]
                message["headers"] = [*own, *(one for one in added if one[0] not in present)]
            await send(message)

        base, path = split_place(scope["path"])
        scope = {**scope, "path": path, "raw_path": quote(path).encode()}
        scope["state"] = {"session": None, "me": None, "secret": "", "base": base, "pages": self._nav}
        request = Request(scope, receive)
        try:
            app = self._admit(request) or self._app
        except Exception as error:  # noqa: BLE001  whatever fails here, the request is refused
            app = await self._refuse(request, error)
        await app(scope, receive, send_with_headers)

    def _admit(self, request: Request) -> ASGIApp | None:
        """Find the session of a request; return an answer for one that has none. Raises RefusedError, ConfigError."""
        origin = request.state.origin = self._console.site.check_host(request)
        if request.method not in _METHODS:
            raise RefusedError(405, "method_not_allowed", "The console knows GET and POST.")
        if request.method == "POST":
            check_origin(request, origin)
        path = request.url.path
        secret = request.state.secret = self._console.site.session_secret(request, request.state.base)
        session = self._console.sessions.find(secret, seen=path not in _UNATTENDED) if secret else None
        if session is not None:
            person = self._console.operators.signed_in(session.operator, session.granted, session.runs)
            if person is None:
                raise RefusedError(401, "no_session", "Log in first.")
            request.state.session = session
            request.state.me = Me(person, session.csrf)
        elif not path.startswith(_PUBLIC):
            return self._log_in_first(request)
        return None

    def _log_in_first(self, request: Request) -> Response:
        if request.method == "GET" and _wants_html(request):
            query = f"?{request.url.query}" if request.url.query else ""
            ended = "ended=1&" if request.state.base else ""
            return see_other(f"/login?{ended}next={quote(request.url.path + query)}")
        raise RefusedError(401, "no_session", "Log in first.")

    async def _refuse(self, request: Request, error: Exception) -> Response:
        refused = _as_refusal(error)
        if refused.status == 500:
            log.error("a page of the console failed", path=request.url.path, exc_info=error)
        if request.state.me is not None and _wants_html(request):
            values = {"status": refused.status, "message": str(refused)}
            return self._console.renderer.page(request, "error.html", values, refused.status)
        body = {"error": {"reason": refused.reason, "message": str(refused)}}
        return JSONResponse(body, refused.status, headers=dict(NO_STORE))


def _placed(base: str, location: bytes) -> bytes:
    """Return where a page sends the browser: within the session's place, unless to the login or another site."""
    within = location.startswith(b"/") and not location.startswith((b"//", b"/login"))
    return base.encode() + location if within else location


def _wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


_REVIEW_STATUS: Final = {
    "not_found": 404,
    "expired": 410,
    **dict.fromkeys(("role_required", "own_proposal"), 403),
    **dict.fromkeys(("reason_required", "reason_too_long", "bad_next", "people_required"), 400),
}


def _as_refusal(error: Exception) -> RefusedError:
    match error:
        case RefusedError():
            return error
        case ReviewError():
            return RefusedError(_REVIEW_STATUS.get(error.code, 409), error.code, str(error))
        case StoreUnavailableError():
            return RefusedError(503, "store_unavailable", f"The store cannot be reached: {error}")
        case AuditUnavailableError():
            return RefusedError(503, "audit_unavailable", f"{error}; nothing was changed")
        case HTTPException():
            return RefusedError(error.status_code, "not_found", "There is no such page.")
        case ConfigError():
            return RefusedError(503, "operators_unavailable", "The operators cannot be read; see the proxy's log.")
    # Nothing of the exception itself: its text may hold arguments or paths. The log has it.
    return RefusedError(500, "internal_error", "The page failed; see the proxy's log.")


_HANDLED: Final = (
    *(Exception, HTTPException, RefusedError, ReviewError),
    *(StoreUnavailableError, AuditUnavailableError, ConfigError),
)
