"""ID tokens by themselves: keys and clocks. What an issuer may send wrong is in test_oidc_page.py."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from joserfc import jwk, jwt

from proxy.console.id_token import Expected, OidcError, UnknownKeyError, verify_id_token
from tests.support.oidc_issuer import new_key

NOW = 1_000_000
EXPECTED = Expected("https://id.example.com", "us", "n")
CLAIMS = {"iss": EXPECTED.issuer, "aud": "us", "sub": "ann", "exp": NOW + 60, "iat": NOW, "nonce": "n"}
KEY = new_key()


def token(key: Any = KEY, algorithm: str = "RS256", **claims: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jwt.encode({"alg": algorithm, "kid": key.kid}, {**CLAIMS, **claims}, key, algorithms=[algorithm])


def listed(*keys: Any, **changes: Any) -> dict[str, Any]:
    return {"keys": [{**key.as_dict(private=False), **changes} for key in keys]}


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (KEY, "RS256"),
        (KEY, "PS256"),
        (jwk.ECKey.generate_key("P-256", {"kid": "e"}), "ES256"),
        (jwk.OKPKey.generate_key("Ed25519", {"kid": "o"}), "EdDSA"),
    ],
)
def test_a_token_of_a_listed_key_is_taken(key: Any, algorithm: str) -> None:
    assert verify_id_token(token(key, algorithm), listed(new_key(), key), EXPECTED, NOW)["sub"] == "ann"


@pytest.mark.parametrize("change", [{"use": "enc"}, {"alg": "PS256"}, {"kid": "other"}, {"kty": "EC"}, {"kty": "oct"}])
def test_a_key_for_something_else_signs_nothing(change: dict[str, str]) -> None:
    with pytest.raises(UnknownKeyError):
        verify_id_token(token(), listed(KEY, **change), EXPECTED, NOW)


def test_a_key_that_is_listed_twice_is_no_key() -> None:
    with pytest.raises(UnknownKeyError):
        verify_id_token(token(), listed(KEY, KEY), EXPECTED, NOW)


@pytest.mark.parametrize("keys", [None, [], {}, {"keys": None}, {"keys": [None, 7]}])
def test_keys_that_cannot_be_read_sign_nothing(keys: Any) -> None:
    with pytest.raises(OidcError):
        verify_id_token(token(), keys, EXPECTED, NOW)


def test_a_short_key_signs_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short = jwk.RSAKey.generate_key(1024, {"kid": "s"})
        made = token(short)
    with pytest.raises(OidcError, match="too short"):
        verify_id_token(made, listed(short), EXPECTED, NOW)


@pytest.mark.parametrize(
    ("claims", "taken"),
    [
        ({"exp": NOW - 59}, True),
        ({"exp": NOW - 60}, False),
        ({"iat": NOW + 60}, True),
        ({"iat": NOW + 61}, False),
        ({"iat": NOW - 600}, True),
        ({"iat": NOW - 601}, False),
        ({"nbf": NOW + 60}, True),
        ({"nbf": NOW + 61}, False),
        ({"aud": ["us", "them"], "azp": "us"}, True),
        ({"aud": ["us"]}, True),
    ],
)
def test_clocks_may_differ_by_a_minute_and_no_more(claims: dict[str, Any], taken: bool) -> None:
    made = token(**claims)
    if taken:
        assert verify_id_token(made, listed(KEY), EXPECTED, NOW)
    else:
        with pytest.raises(OidcError):
            verify_id_token(made, listed(KEY), EXPECTED, NOW)


def test_a_clock_that_is_no_number_takes_nothing() -> None:
    with pytest.raises(OidcError):
        verify_id_token(token(exp=float("nan")), listed(KEY), EXPECTED, NOW)
