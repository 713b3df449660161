"""Sign-in by OpenID Connect: the authorization code flow with PKCE, against one issuer."""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from proxy.console.id_token import Expected, OidcError, UnknownKeyError, verify_id_token
from proxy.errors import ConfigError
from proxy.identity.issuer_http import UnreachableError, UnreadableAnswerError, ask_json, check_url
from proxy.identity.oidc_settings import person_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxy.identity.oidc_settings import OidcSettings, Person

CALLBACK: Final = "/login/oidc/callback"
KEPT_SECONDS: Final = 3600.0
REFRESH_SECONDS: Final = 10.0
_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class IssuerDownError(OidcError):
    """The issuer cannot be asked now."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One login that is under way; its secrets never leave this process, except to the issuer."""

    state: str
    nonce: str
    verifier: str
    next: str


@dataclass(slots=True)
class _Kept:
    value: Any
    at: float


class OidcClient:
    """A client of one issuer. Nothing is asked before the first login, so a console starts without its issuer."""

    def __init__(self, settings: OidcSettings, console_url: str, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self.redirect_uri = console_url + CALLBACK
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    async def begin(self, to: str) -> tuple[Attempt, str]:
        """Return a new login, and where the browser goes for it. Raises OidcError."""
        found = await self._discover()
        attempt = Attempt(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48), to)
        digest = hashlib.sha256(attempt.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": " ".join(self._settings.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        address = found["authorization_endpoint"]
        return attempt, f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"

    async def finish(self, attempt: Attempt, query: Mapping[str, str]) -> Person:
        """Return who signed in. Raises OidcError for whatever is not the answer to this very login."""
        if not secrets.compare_digest(query.get("state", "").encode(), attempt.state.encode()):
            raise OidcError("the answer is of another login")
        found = await self._discover()
        names_issuer = "iss" in query or found.get("authorization_response_iss_parameter_supported") is True
        if names_issuer and query.get("iss") != self._settings.issuer:
            raise OidcError("the answer is of another issuer")
        if "error" in query or not query.get("code"):
            raise OidcError("the issuer did not sign you in")
        answer = await self._exchange(found, query["code"], attempt.verifier)
        claims = await self._verify(answer.get("id_token", ""), attempt.nonce, found["jwks_uri"])
        try:
            return person_of(claims, self._settings)
        except ValueError as error:
            raise OidcError(str(error)) from error

    async def _verify(self, token: str, nonce: str, jwks: str) -> dict[str, Any]:
        expected = Expected(self._settings.issuer, self._settings.client_id, nonce)
        keys = await self._fetch(jwks)
        try:
            return verify_id_token(token, keys, expected, self._clock())
        except UnknownKeyError:
            # Keys that were changed are fetched again, but not more often than that: anybody can name an unknown key.
            if self._clock() - self._kept[jwks].at < REFRESH_SECONDS:
                raise
            del self._kept[jwks]
            return verify_id_token(token, await self._fetch(jwks), expected, self._clock())

    async def _discover(self) -> dict[str, Any]:
        address = f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = await self._fetch(address)
        if not _is_discovery(found, self._settings.issuer):
            del self._kept[address]
            raise OidcError("what the issuer says about itself cannot be used")
        return dict(found)

    async def _exchange(self, found: dict[str, Any], code: str, verifier: str) -> dict[str, Any]:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.redirect_uri}
        form |= {"code_verifier": verifier, "client_id": self._settings.client_id}
        headers = {}
        try:
            secret = self._settings.secret()
        except ConfigError as error:
            raise OidcError("the client's secret cannot be read") from error
        if secret is not None and "client_secret_post" in (found.get("token_endpoint_auth_methods_supported") or ()):
            form["client_secret"] = secret
        elif secret is not None:
            pair = f"{quote(self._settings.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        status, answer = await self._ask("POST", found["token_endpoint"], form, headers)
        if status != 200 or not isinstance(answer, dict):
            raise OidcError("the issuer did not take the code")
        return answer

    async def _fetch(self, address: str) -> Any:
        """Return a document of the issuer's; a kept one for a while, also where the issuer is down."""
        kept = self._kept.get(address)
        if kept is None or not 0 <= self._clock() - kept.at < KEPT_SECONDS:
            self._kept.pop(address, None)
            status, value = await self._ask("GET", address)
            if status != 200:
                raise IssuerDownError(f"the issuer answered with status {status}")
            kept = self._kept[address] = _Kept(value, self._clock())
        return kept.value

    async def _ask(
        self, method: str, address: str, form: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        try:
            return await ask_json(address, method, form=form, headers=headers, ca_file=self._settings.ca_file)
        except UnreadableAnswerError as error:
            raise OidcError(str(error)) from error
        except UnreachableError as error:
            raise IssuerDownError(str(error)) from error


def _is_discovery(found: Any, issuer: str) -> bool:
    if not isinstance(found, dict) or found.get("issuer") != issuer:
        return False
    try:
        return all(bool(check_url(found[name])) for name in _ENDPOINTS)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
