"""Operators at the admin API by a token of their issuer, as `console_oidc` names it: claims give name and role."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from proxy.core.approvals import Operator
from proxy.identity.jwt import ALGORITHMS, TokenError, TokenRules, UnknownKeyError, check_claims, parse_token
from proxy.identity.key_source import KeysUnavailableError, RemoteKeys
from proxy.identity.oidc_settings import person_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.identity.jwt import ParsedToken
    from proxy.identity.oidc_settings import OidcSettings

WAIT_SECONDS: Final = 5.0
OLDEST_SECONDS: Final = 12 * 3600.0
"""How long after it was made a token opens the API, whatever its end says: as long as a session of the console's."""


class OperatorVerifier:
    """Knows operators by ID tokens for the console's client. Keys are fetched when the first one comes."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._clock = clock
        self._keys = RemoteKeys(settings.issuer, ca_file=settings.ca_file)
        self._rules = TokenRules(settings.issuer, [settings.client_id], ALGORITHMS)

    async def operator(self, token: str) -> Operator:
        """Return whose token it is. Raises TokenError."""
        parsed, now = parse_token(token), self._clock()
        check_claims(parsed, self._rules, now)
        check_party(parsed.claims, self._settings.client_id)
        made_at = parsed.claims.get("iat")
        if not isinstance(made_at, int | float) or made_at < now - OLDEST_SECONDS:
            raise TokenError("token_expired", "it was made too long ago, or does not say when")
        await self._check_signature(parsed)
        try:
            person = person_of(parsed.claims, self._settings)
        except ValueError as error:
            raise TokenError("token_claims", str(error)) from error
        return Operator(person.name, person.role, person.runs)

    async def _check_signature(self, token: ParsedToken) -> None:
        try:
            self._keys.current().verify(token)
        except (UnknownKeyError, KeysUnavailableError):
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._keys.renew()
            except TimeoutError:
                pass  # decided by the keys that are there
            try:
                self._keys.current().verify(token)
            except KeysUnavailableError as error:
                raise TokenError("issuer_unavailable", str(error)) from error


def check_party(claims: dict[str, Any], client_id: str) -> None:
    """Raise TokenError for a token of several parties that does not say that it was made for us."""
    several = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
    if (several or "azp" in claims) and claims.get("azp") != client_id:
        raise TokenError("token_audience", "it was made for somebody else")
