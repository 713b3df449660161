"""The pages of passkeys: an operator's own at /sign-in, and the login with one."""

from __future__ import annotations

import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from proxy.console.challenges import Challenges
from proxy.console.context import action, view
from proxy.console.login_page import next_path, see_other
from proxy.console.passkeys import PasskeyError, Wanted, creation_options, relying_party, request_options
from proxy.console.security import NO_STORE, RefusedError, read_form
from proxy.core.approvals import Role
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from starlette.requests import Request

    from proxy.console.context import Console, Me, NavEntry
    from proxy.console.passkeys import RelyingParty

SECONDS: Final = 120
_WAY: Final = "passkey"


class PasskeyPage:
    nav: NavEntry | None = None

    def __init__(self, console: Console) -> None:
        self._console = console
        self._registrations: Challenges[Wanted] = Challenges(SECONDS)
        self._logins: Challenges[Wanted] = Challenges(SECONDS)

    def routes(self) -> list[Route]:
        return [
            view("/sign-in", self.show),
            action("/sign-in/passkeys/options", _own(self.offer), Role.VIEWER),
            action("/sign-in/passkeys", _own(self.register), Role.VIEWER),
            action("/sign-in/passkeys/remove", _own(self.remove), Role.VIEWER),
            Route("/login/passkey/options", self.ask, methods=["POST"]),
            Route("/login/passkey", self.log_in, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        me: Me = request.state.me
        values = {
            "passkeys": self._console.passkeys.of(me.operator),
            "here": self._party(request) is not None,
            "named_url": self._console.site.named_url,
            "local": request.state.session.granted is None,
        }
        return self._console.renderer.page(request, "sign_in.html", values)

    async def offer(self, request: Request, _: Mapping[str, str]) -> Response:
        me: Me = request.state.me
        wanted = self._wanted(request)
        with _refusing(400):
            stamp = self._console.passkeys.stamp(me.operator)
        known = list(self._console.passkeys.of(me.operator))
        self._registrations.put(me.csrf, wanted)
        return _json(creation_options(wanted, me.operator, stamp, known))

    async def register(self, request: Request, form: Mapping[str, str]) -> Response:
        me: Me = request.state.me
        # Bound to the session by its token, and used up whatever comes of it.
        wanted = self._registrations.take(me.csrf)
        if wanted is None or wanted.party.origin != request.state.origin:
            raise RefusedError(403, "wrong_passkey", "This took too long, or was done already. Try again.")
        with _refusing(403):
            keys, label = self._console.passkeys, form.get("label", "")
            added = keys.register(form.get("credential", ""), wanted, me.operator, label)
        try:
            await self._record("passkey_added", me.operator)
        except BaseException:
            keys.remove(me.operator, added)
            raise
        return JSONResponse({"next": f"{request.state.base}/sign-in"}, headers=dict(NO_STORE))

    async def remove(self, request: Request, form: Mapping[str, str]) -> Response:
        me: Me = request.state.me
        with _refusing(404):
            self._console.passkeys.remove(me.operator, form.get("id", ""))
        await self._record("passkey_removed", me.operator)
        return see_other("/sign-in")

    async def ask(self, request: Request) -> Response:
        wanted = self._wanted(request)
        response = _json(request_options(wanted))
        self._logins.put(self._console.door.set_ticket(response, _WAY, SECONDS, "strict"), wanted)
        return response

    async def log_in(self, request: Request) -> Response:
        form = await read_form(request)
        try:
            operator = self._console.passkeys.log_in(form.get("credential", ""), self._take_login(request))
        except PasskeyError as error:
            await self._console.door.refuse(request, "a passkey")
            raise RefusedError(403, "wrong_passkey", str(error)) from error
        session = self._console.sessions.open(operator)
        if session is None:
            raise RefusedError(403, "wrong_passkey", "The operator of this passkey was revoked.")
        response = JSONResponse(
            {"next": self._console.site.base(session) + next_path(form.get("next", ""))}, headers=dict(NO_STORE)
        )
        self._console.door.drop_ticket(response, _WAY)
        return await self._console.door.admit(request, response, operator, session, _WAY)

    def _take_login(self, request: Request) -> Wanted:
        wanted = self._logins.take(self._console.door.ticket(request, _WAY))
        if wanted is None or wanted.party.origin != request.state.origin:
            raise PasskeyError("This took too long, or was done already. Try again.")
        return wanted

    def _party(self, request: Request) -> RelyingParty | None:
        site, party = self._console.site, relying_party(request.state.origin)
        if party is None or party.origin == site.url:
            return party
        # A page of somebody else's listener would have this origin, too.
        return party if party.rp_id == "localhost" and site.owns_localhost else None

    def _wanted(self, request: Request) -> Wanted:
        party = self._party(request)
        if party is None:
            where = self._console.site.named_url
            hint = f"; open {where}" if where else ""
            raise RefusedError(400, "no_passkeys_here", f"Passkeys need a name in place of an address{hint}.")
        return Wanted(party, secrets.token_bytes(32))

    async def _record(self, kind: str, operator: str) -> None:
        detail = {"via": "console", "operator": operator}
        await self._console.sink.record(AuditEvent(event_id=new_id(), kind=kind, time=time.time(), detail=detail))


type _Handler = Callable[[Request, Mapping[str, str]], Awaitable[Response]]


def _own(handler: _Handler) -> _Handler:
    """Refuse who was signed in by an identity provider: a passkey has the role of the file, which may be higher."""

    async def act(request: Request, form: Mapping[str, str]) -> Response:
        if request.state.session.granted is not None:
            raise RefusedError(403, "wrong_passkey", "Passkeys are for operators of this state folder.")
        return await handler(request, form)

    return act


@contextlib.contextmanager
def _refusing(status: int) -> Iterator[None]:
    """Turn a PasskeyError of the block into a refusal with a status."""
    try:
        yield
    except PasskeyError as error:
        raise RefusedError(status, "wrong_passkey", str(error)) from error


def _json(text: str) -> Response:
    return Response(text, media_type="application/json", headers=dict(NO_STORE))
