"""Verifies ID tokens of OpenID Connect. Pure: keys and the time are given."""

from __future__ import annotations

import base64
import json
import warnings
from dataclasses import dataclass
from typing import Any, Final

# Public keys alone. With `none` or HS256 anybody could sign: the "secret" would be a key that everybody has.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
SKEW_SECONDS: Final = 60
OLDEST_SECONDS: Final = 600
MAX_TOKEN: Final = 64 << 10
MIN_RSA_BITS: Final = 2048


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
    if not isinstance(token, str) or len(token) > MAX_TOKEN:
        raise OidcError("the issuer sent no ID token")
    header = _header(token)
    key = _key(header, keys)
    claims = _verified_claims(token, key, str(header["alg"]))
    check_claims(claims, expected, now)
    return claims


def check_claims(claims: dict[str, Any], expected: Expected, now: float) -> None:
    """Raise OidcError unless claims are of this issuer, for this client, for this login, and of now."""
    if claims.get("iss") != expected.issuer:
        raise OidcError("the ID token is of another issuer")
    _check_audience(claims, expected.client_id)
    times: dict[str, Any] = {name: claims.get(name) for name in ("exp", "iat")} | {"nbf": claims.get("nbf", 0)}
    if any(type(value) not in (int, float) for value in times.values()):
        raise OidcError("the ID token has no times")
    if not times["exp"] > now - SKEW_SECONDS:
        raise OidcError("the ID token has expired")
    if not now - OLDEST_SECONDS <= times["iat"] <= now + SKEW_SECONDS or not times["nbf"] <= now + SKEW_SECONDS:
        raise OidcError("the ID token is not of now; look at the clocks")
    if not isinstance(claims.get("nonce"), str) or claims["nonce"] != expected.nonce:
        raise OidcError("the ID token is of another login")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise OidcError("the ID token names nobody")


def _check_audience(claims: dict[str, Any], client_id: str) -> None:
    audience = claims.get("aud")
    several = audience if isinstance(audience, list) else [audience]
    if client_id not in several or not all(isinstance(one, str) for one in several):
        raise OidcError("the ID token is for somebody else")
    # A token for several is ours only where it says that it was made for us.
    if (len(several) > 1 or "azp" in claims) and claims.get("azp") != client_id:
        raise OidcError("the ID token was made for somebody else")


def _header(token: str) -> dict[str, Any]:
    try:
        part, _, _ = token.split(".")
        header = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        fits = isinstance(header, dict) and header.get("alg") in ALGORITHMS and "crit" not in header
    except (ValueError, TypeError, RecursionError) as error:
        raise OidcError("the ID token cannot be read") from error
    if not fits:
        raise OidcError("the ID token is not signed in a way that is accepted")
    return dict(header)


def _key(header: dict[str, Any], keys: Any) -> dict[str, Any]:
    """Return the one key of the set that the token names."""
    listed = keys.get("keys") if isinstance(keys, dict) else None
    if not isinstance(listed, list):
        raise OidcError("the issuer's keys cannot be read")
    wanted = _kinds(header["alg"])
    fitting = [
        key
        for key in listed
        if isinstance(key, dict) and key.get("kty") == wanted and key.get("use", "sig") == "sig"
        if key.get("alg", header["alg"]) == header["alg"] and ("kid" not in header or key.get("kid") == header["kid"])
    ]
    if len(fitting) != 1:
        raise UnknownKeyError("the ID token is signed with a key that the issuer does not list")
    return dict(fitting[0])


def _kinds(algorithm: str) -> str:
    return {"R": "RSA", "P": "RSA"}.get(algorithm[0], "OKP" if algorithm == "EdDSA" else "EC")


def _verified_claims(token: str, key: dict[str, Any], algorithm: str) -> dict[str, Any]:
    from joserfc import jwk, jwt  # noqa: PLC0415  for those who use OIDC alone

    public = {name: value for name, value in key.items() if name in ("kty", "n", "e", "crv", "x", "y", "kid")}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of EdDSA's name, which issuers use: it is the algorithm that is verified.
            imported = jwk.import_key(public)
            claims = jwt.decode(token, imported, algorithms=[algorithm]).claims
    except Exception as error:
        # Whatever a stranger's bytes make the library raise: the token is refused.
        raise OidcError("the ID token's signature is wrong") from error
    if isinstance(imported, jwk.RSAKey) and imported.public_key.key_size < MIN_RSA_BITS:
        raise OidcError("the issuer's key is too short")
    if not isinstance(claims, dict):
        raise OidcError("the ID token cannot be read")
    return claims
