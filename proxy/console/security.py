"""What every request must pass, and every answer carry. The console is for one browser page: its own.

A web page elsewhere can send an operator's browser here. It gets no cookie (SameSite=Strict), may not read an answer
(no CORS), frame a page or post a form (Origin, and a token of the session), or reach it by a name of its own (Host).
"""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import ClientDisconnect, Request

from proxy.console.sessions import PLACE, PLACE_LETTERS, is_csrf_of, place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.admin_api.auth import ListenerName
    from proxy.console.sessions import Session

MAX_FORM: Final = 256 << 10
MAX_FIELDS: Final = 100
FORM_SECONDS: Final = 10.0
CSRF_FIELD: Final = "csrf"
CSRF_HEADER: Final = "x-csrf-token"
# No inline script or style, nothing from elsewhere; and no text ever becomes script or markup (Trusted Types).
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: then browsers send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
NO_STORE: Final = {"Cache-Control": "no-store"}


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class RefusedError(Exception):
    """A request that is not served: an HTTP status, a stable code, and a sentence."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Site:
    """Where the console is: the address it listens on, and the URL that operators use where another server is in front.

    With an https URL, cookies are for TLS alone.
    """

    listener: ListenerName
    url: str | None = None
    # Whether `localhost` leads here by both IPv4 and IPv6, and never to somebody else's listener.
    owns_localhost: bool = True

    @property
    def secure(self) -> bool:
        return self.url is not None and self.url.startswith("https:")

    @property
    def cookie(self) -> str:
        # The prefix makes browsers refuse such a cookie from any other host or path, and without TLS.
        return "__Host-interlock" if self.secure else f"interlock-{self.listener.port}"

    def base(self, secret: str) -> str:
        """Return what the paths of a session's pages begin with.

        A browser sends a cookie to every port of a host, so also to a page that an agent serves there. It sends it only
        to the path that the cookie is for, and nobody else knows that one. The prefix `__Host-` allows no path; who
        answers for the name with TLS is not an agent.
        """
        return "" if self.secure else place_of(secret)

    def session_secret(self, request: Request, base: str) -> str:
        """Return the secret of the session whose pages are under `base`, of all cookies of that name; empty for none.

        A page on another port can set cookies of the same name for the whole host. They count for nothing, and hide
        nothing.
        """
        sent = (
            pair.strip().partition("=") for header in request.headers.getlist("cookie") for pair in header.split(";")
        )
        secrets = (value for name, _, value in sent if name == self.cookie and value)
        return next((secret for secret in secrets if self.base(secret) == base), "")

    @property
    def named_url(self) -> str | None:
        """The console's URL with a name, which passkeys need; None where it has none."""
        if self.url is not None and not is_address(urlsplit(self.url).hostname or ""):
            return self.url
        return f"http://localhost:{self.listener.port}" if self.owns_localhost else None

    def check_host(self, request: Request) -> str:
        """Return the origin that the request is for. Raises RefusedError where it is for another host."""
        hosts = request.headers.getlist("host")
        if len(hosts) == 1:
            if self.url is not None and hosts[0].lower() == urlsplit(self.url).netloc:
                return self.url
            if self.listener.fits(hosts[0]):
                return f"http://{hosts[0].lower()}"
        raise RefusedError(421, "wrong_host", "The Host header does not name this console.")


def split_place(path: str) -> tuple[str, str]:
    """Return a path's beginning that names the place of a session, empty where it names none, and what follows."""
    place, slash, rest = path.removeprefix(PLACE).partition("/")
    is_place = path.startswith(PLACE) and slash and len(place) == PLACE_LETTERS and place.isascii() and place.isalnum()
    return (PLACE + place, "/" + rest) if is_place else ("", path)


def check_origin(request: Request, origin: str) -> None:
    """Raise RefusedError unless a page of this console sent the request."""
    origins = request.headers.getlist("origin")
    if len(origins) != 1 or origins[0].lower() != origin:
        raise RefusedError(403, "wrong_origin", "This did not come from a page of this console.")


def check_csrf(request: Request, session: Session, form: Mapping[str, str]) -> None:
    """Raise RefusedError unless the request has the session's token, as a header or in its form."""
    if not is_csrf_of(session, request.headers.get(CSRF_HEADER) or form.get(CSRF_FIELD) or ""):
        raise RefusedError(403, "wrong_csrf_token", "This page is out of date. Load it again.")


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises RefusedError where it is none, too large, too slow, or has a field twice."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise RefusedError(415, "not_a_form", "The body must be a form.")
    body = b""
    try:
        async with asyncio.timeout(FORM_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_FORM:
                    raise RefusedError(413, "form_too_large", f"The form has more than {MAX_FORM} bytes.")
    except TimeoutError:
        raise RefusedError(408, "form_too_slow", "The form did not arrive in time.") from None
    except ClientDisconnect:
        raise RefusedError(400, "form_cut", "The form did not arrive whole.") from None
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=MAX_FIELDS, errors="strict"
        )
    except ValueError:
        raise RefusedError(400, "bad_form", "The form cannot be read.") from None
    form = dict(pairs)
    if len(form) != len(pairs):
        raise RefusedError(400, "bad_form", "The form has a field twice.")
    return form
