"""Signed tokens by themselves: forms, keys and clocks."""

from __future__ import annotations

import base64
import json
import math
import warnings
from typing import Any

import pytest
from joserfc import jwk, jwt

from proxy.identity.jwt import (
    _PRIMES,
    KeySet,
    TokenError,
    TokenRules,
    UnknownKeyError,
    check_claims,
    is_guessable,
    parse_token,
)
from tests.support.oidc_issuer import encode, forge, usual_key

NOW = 1_000_000
RULES = TokenRules("https://id", ["us"], ["RS256", "ES256"])
CLAIMS = {"iss": "https://id", "aud": "us", "sub": "bot", "exp": NOW + 60}


def signed(key: Any, algorithm: str = "RS256", header: dict[str, Any] | None = None, **claims: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head = {"alg": algorithm, "kid": key.kid, **(header or {})}
        return jwt.encode(head, {**CLAIMS, **claims}, key, algorithms=[algorithm])


def keys(*listed: Any, **changes: Any) -> KeySet:
    return KeySet({"keys": [{**key.as_dict(private=False), **changes} for key in listed]})


def reason(text: str, key_set: KeySet | None = None, rules: TokenRules = RULES) -> str | None:
    try:
        token = parse_token(text)
        check_claims(token, rules, NOW)
        (key_set or keys(usual_key())).verify(token)
    except TokenError as error:
        return error.reason
    return None


def test_a_right_token_is_taken() -> None:
    assert reason(signed(usual_key())) is None


HEAD, BODY, SIGNATURE = signed(usual_key()).split(".")


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("", "token_malformed"),
        ("a.b", "token_malformed"),
        (f"{HEAD}.{BODY}.", "token_malformed"),
        (f"{HEAD}.{BODY}.{SIGNATURE}.x", "token_malformed"),
        (f"{HEAD}.{BODY}.{SIGNATURE}=", "token_malformed"),
        (f" {HEAD}.{BODY}.{SIGNATURE}", "token_malformed"),
        (f"{HEAD}.{BODY}\n.{SIGNATURE}", "token_malformed"),
        (f"{HEAD}.{BODY}.{SIGNATURE[:-1]}", "token_malformed"),
        (f"{HEAD}.{BODY}.{encode(b'x' * 256)}", "token_signature"),
        ("x" * 70_000, "token_too_large"),
        (forge({"alg": "none"}, CLAIMS), "token_malformed"),
        *(
            (forge({"alg": name}, CLAIMS, lambda _: b"x"), "token_algorithm")
            for name in ("none", "None", "NONE", "nOnE", "HS256", "hs256", "RS256 ", "", None, 7, ["RS256"], "ES256K")
        ),
        (forge({"alg": "RS256", "crit": ["b64"], "b64": False}, CLAIMS, lambda _: b"x"), "token_malformed"),
        (forge({"alg": "RS256", "zip": "DEF"}, CLAIMS, lambda _: b"x"), "token_malformed"),
        (forge({"alg": "RS256", "kid": 7}, CLAIMS, lambda _: b"x"), "token_malformed"),
        (forge({"alg": "RS256", "kid": "k" * 600}, CLAIMS, lambda _: b"x"), "token_malformed"),
        (f"{HEAD}.{encode(b'[]')}.eA", "token_malformed"),
        (f"{HEAD}.{encode(b'{')}.eA", "token_malformed"),
        (f"{HEAD}.{encode(b'{"exp":NaN}')}.eA", "token_malformed"),
        (f"{HEAD}.{encode(b'{"sub":"a","sub":"b"}')}.eA", "token_malformed"),
        (f"{HEAD}.{encode(b'[' * 9000)}.eA", "token_malformed"),
        (f"{HEAD}.{encode(json.dumps(CLAIMS).encode('utf-16'))}.eA", "token_malformed"),
        (f"{encode(b'{"alg":"RS256","alg":"none"}')}.{BODY}.eA", "token_malformed"),
    ],
)
def test_another_form_is_refused(text: str, refused: str) -> None:
    assert reason(text) == refused


def test_bits_that_no_byte_needs_are_part_of_the_form() -> None:
    # The last letter of 256 bytes has four bits that say nothing: others decode to the same signature.
    other = SIGNATURE[:-1] + ("B" if SIGNATURE[-1] == "A" else chr(ord(SIGNATURE[-1]) + 1))
    assert base64.urlsafe_b64decode(other + "==") == base64.urlsafe_b64decode(SIGNATURE + "==")
    assert reason(f"{HEAD}.{BODY}.{other}") == "token_malformed"


@pytest.mark.parametrize(
    ("claims", "refused"),
    [
        ({"exp": NOW - 59}, None),
        ({"exp": NOW - 60}, "token_expired"),
        ({"nbf": NOW + 60}, None),
        ({"nbf": NOW + 61}, "token_early"),
        ({"iat": NOW + 61}, "token_early"),
        ({"exp": None}, "token_claims"),
        ({"exp": "9999999999"}, "token_claims"),
        ({"exp": True}, "token_claims"),
        ({"exp": 10**400}, "token_claims"),
        ({"exp": 1e300}, "token_claims"),
        ({"nbf": "0"}, "token_claims"),
        ({"iss": "https://id/"}, "token_issuer"),
        ({"iss": ["https://id"]}, "token_issuer"),
        ({"aud": ["them", "us"]}, None),
        ({"aud": ["them"]}, "token_audience"),
        ({"aud": []}, "token_audience"),
        ({"aud": "us them"}, "token_audience"),
        ({"aud": ["us", 7]}, "token_audience"),
        ({"aud": {"us": 1}}, "token_audience"),
    ],
)
def test_claims_are_checked(claims: dict[str, Any], refused: str | None) -> None:
    assert reason(signed(usual_key(), **claims)) == refused


def test_an_algorithm_counts_only_where_the_issuer_may_use_it() -> None:
    made = signed(usual_key(), "PS256")
    assert reason(made) == "token_algorithm"
    assert reason(made, rules=TokenRules("https://id", ["us"], ["PS256"])) is None


def test_the_kind_of_token_is_checked_where_it_is_asked_for() -> None:
    rules = TokenRules("https://id", ["us"], ["RS256"], ["at+jwt"])
    assert reason(signed(usual_key()), rules=rules) == "token_claims"
    assert reason(signed(usual_key(), header={"typ": "JWT"}), rules=rules) == "token_claims"
    assert reason(signed(usual_key(), header={"typ": "application/AT+JWT"}), rules=rules) is None


def test_a_curve_fits_one_algorithm() -> None:
    wrong = jwk.ECKey.generate_key("P-384", {"kid": "e"})
    made = signed(wrong, "ES384")
    everything = TokenRules("https://id", ["us"])
    assert reason(made, keys(wrong), everything) is None
    assert reason(made, keys(jwk.ECKey.generate_key("P-256", {"kid": "e"})), everything) == "token_key"
    assert reason(signed(usual_key()), keys(wrong)) == "token_key"


@pytest.mark.parametrize(
    "change", [{"use": "enc"}, {"alg": "PS256"}, {"kid": "x"}, {"kty": "oct"}, {"key_ops": ["sign"]}]
)
def test_a_key_for_something_else_signs_nothing(change: dict[str, Any]) -> None:
    with pytest.raises(UnknownKeyError):
        keys(usual_key(), **change).verify(parse_token(signed(usual_key())))


def test_a_shared_secret_in_the_set_signs_nothing() -> None:
    assert len(KeySet({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "x", "alg": "HS256"}]})) == 0


@pytest.mark.parametrize("document", [None, [], {}, {"keys": {}}, {"keys": [{}] * 129}])
def test_what_is_no_key_set_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="keys"):
        KeySet(document)


def test_odd_keys_do_not_spoil_the_others() -> None:
    listed = [None, {}, {"kty": "RSA"}, {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, {"kty": 7}, {"kid": 7}]
    assert len(KeySet({"keys": [*listed, usual_key().as_dict(private=False)]})) == 1


def test_sets_are_equal_by_their_keys() -> None:
    assert keys(usual_key()) == keys(usual_key())
    assert keys(usual_key()) != keys(usual_key(), kid="other")


def test_a_modulus_that_can_be_computed_is_found() -> None:
    product = math.prod(_PRIMES)
    assert is_guessable(pow(65537, 12345, product) + product)
    assert not is_guessable(usual_key().public_key.public_numbers().n)
