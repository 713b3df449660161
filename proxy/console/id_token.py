"""Verifies ID tokens of OpenID Connect: a signed token like those of agents, for one client and one login."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from proxy.identity.jwt import ALGORITHMS, KeySet, TokenError, TokenRules, check_claims, parse_token
from proxy.identity.jwt import UnknownKeyError as UnknownTokenKeyError
from proxy.identity.operator_verifier import check_party

OLDEST_SECONDS: Final = 600


class OidcError(Exception):
    """A sign-in that is refused, with a sentence that says why."""


class UnknownKeyError(OidcError):
    """The token names a key that is not in the set: the issuer may have changed its keys."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a token must say."""

    issuer: str
    client_id: str
    nonce: str


def verify_id_token(token: str, keys: Any, expected: Expected, now: float) -> dict[str, Any]:
    """Return the claims of a token. Raises OidcError for one that is not for us, not now, or not the issuer's."""
    if not isinstance(token, str):
        raise OidcError("the issuer sent no ID token")
    try:
        parsed = parse_token(token)
        _key_set(keys).verify(parsed)
        check_claims(parsed, TokenRules(expected.issuer, [expected.client_id], ALGORITHMS), now)
        check_party(parsed.claims, expected.client_id)
    except UnknownTokenKeyError as error:
        raise UnknownKeyError(f"the ID token cannot be used: {error.detail}") from error
    except TokenError as error:
        raise OidcError(f"the ID token cannot be used: {error.detail}") from error
    _check_login(parsed.claims, expected, now)
    return parsed.claims


def _key_set(keys: Any) -> KeySet:
    try:
        return KeySet(keys)
    except ValueError as error:
        raise OidcError("the issuer's keys cannot be read") from error


def _check_login(claims: dict[str, Any], expected: Expected, now: float) -> None:
    """Raise OidcError unless claims are of this login, and made for this client."""
    if type(claims.get("iat")) not in (int, float) or not now - OLDEST_SECONDS <= claims["iat"]:
        raise OidcError("the ID token is not of now; look at the clocks")
    if not isinstance(claims.get("nonce"), str) or claims["nonce"] != expected.nonce:
        raise OidcError("the ID token is of another login")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise OidcError("the ID token names nobody")
