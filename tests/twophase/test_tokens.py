"""Commit tokens: one spelling, one signature, one time."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, hmac
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.twophase.tokens import (
    MAX_SKEW,
    MAX_TOKEN,
    BadTokenError,
    KeyRing,
    SigningKey,
    Token,
    check_time,
    issue,
    read,
)

NEW, OLD = SigningKey("new", b"n" * 32), SigningKey("old", b"o" * 40, not_after=1000.0)
RING = KeyRing(NEW, (OLD,))
TOKEN = Token(
    token_id="t1",
    proposal_id="p1",
    tool_name="transfer_funds",
    tool_args_hash="ab" * 32,
    issued_at=500.0,
    expires_at=800.5,
    nonce="n1",
    composite_score=0.25,
    server="bank.example",
    principal="agent",
)
TEXT = issue(TOKEN, RING)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(payload: bytes, key: SigningKey = NEW, version: str = "ilk1") -> str:
    """A token of any payload, with a right signature."""
    start = f"{version}.{key.key_id}.{encoded(payload)}"
    made = hmac.HMAC(key.secret, hashes.SHA256())
    made.update(start.encode())
    return f"{start}.{encoded(made.finalize())}"


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def said() -> dict[str, Any]:
    """What TOKEN says, as JSON values."""
    return {**dataclasses.asdict(TOKEN), "issued_at": 500}


def refusal(text: object, ring: KeyRing = RING) -> BadTokenError:
    with pytest.raises(BadTokenError) as caught:
        read(text, ring)
    assert caught.value.reason == "bad_signature"
    return caught.value


def test_what_was_issued_is_read() -> None:
    assert read(TEXT, RING) == TOKEN
    assert TEXT.startswith("ilk1.new.")
    assert signed(canonical(said())) == TEXT, "the helper of these tests signs as the product does"


@settings(deadline=None)
@given(
    st.builds(
        Token,
        **dict.fromkeys(
            ("token_id", "proposal_id", "tool_name", "tool_args_hash", "nonce", "server", "principal"),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        ),
        issued_at=st.floats(0, 1e11),
        expires_at=st.floats(0, 1e11),
        composite_score=st.none() | st.floats(0, 1),
    )
)
def test_any_token_is_read_as_it_was_issued(token: Token) -> None:
    assert read(issue(token, RING), RING) == token


def test_times_are_kept_to_the_millisecond() -> None:
    token = dataclasses.replace(TOKEN, issued_at=1.00049, expires_at=2)
    assert (token.issued_at, token.expires_at) == (1.0, 2.0)
    assert read(issue(token, RING), RING) == token


ODD = "\0\t\n\r !\"#$%&'()*+,-./09:;=@AZ[]^_`az{|}~\x7f\x80\xa0\xad\xff\u200b\uff0e\ud800"


@pytest.mark.parametrize("part", range(4), ids=["version", "key", "payload", "mac"])
def test_a_token_with_any_one_character_changed_is_refused(part: int) -> None:
    start = len(".".join(TEXT.split(".")[:part]))
    for place in range(start, start + len(TEXT.split(".")[part]) + 1):
        if place < len(TEXT):
            near = {chr(ord(TEXT[place]) ^ 1 << bit) for bit in range(8)}
            for other in {*ODD, *near} - {TEXT[place]}:
                refusal(TEXT[:place] + other + TEXT[place + 1 :])


def test_a_token_with_a_character_left_out_or_twice_is_refused() -> None:
    for place in range(len(TEXT)):
        refusal(TEXT[:place] + TEXT[place + 1 :])
        refusal(TEXT[:place] + TEXT[place] + TEXT[place:])


@settings(deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=300) | st.integers() | st.none() | st.lists(st.text()))
def test_anything_else_is_refused_and_nothing_else_is_raised(text: object) -> None:
    refusal(text)
    if isinstance(text, bytes):
        refusal(text.decode("latin-1"))
        refusal(f"ilk1.new.{encoded(text)}.{encoded(text[:32])}")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_other_payload_is_refused_even_if_signed(payload: bytes) -> None:
    refusal(signed(payload))


@pytest.mark.parametrize(
    "text",
    [
        f" {TEXT}",
        f"{TEXT}\n",
        f"{TEXT}=",
        f"{TEXT}.",
        TEXT.replace(".", "\uff0e"),
        TEXT.upper(),
        "",
        "ilk1...",
        TEXT.replace("ilk1", "ilk2"),
        signed(canonical(said()), version="ilk2"),
        TEXT.replace("ilk1.new", "ilk1.old"),
        TEXT.replace("ilk1.new", "ilk1.who"),
    ],
)
def test_another_spelling_version_or_key_is_refused(text: str) -> None:
    refusal(text)


@pytest.mark.parametrize(
    "payload",
    [
        canonical({key: value for key, value in said().items() if key != "nonce"}),
        canonical({**said(), "more": 1}),
        canonical({**said(), "nonce": 1}),
        canonical({**said(), "server": None}),
        canonical({**said(), "expires_at": "800.5"}),
        canonical({**said(), "expires_at": True}),
        canonical({**said(), "expires_at": None}),
        canonical({**said(), "expires_at": 800.12345}),
        canonical({**said(), "expires_at": math.inf}),
        canonical({**said(), "issued_at": math.nan}),
        canonical({**said(), "issued_at": 10**400}),
        canonical({**said(), "composite_score": "0.25"}),
        canonical({**said(), "composite_score": False}),
        canonical({**said(), "nonce": "\ud800"}),
        canonical([said()]),
        canonical("x"),
        canonical(None),
        canonical(said()) + b" ",
        json.dumps(said(), sort_keys=True).encode(),
        canonical(dict(reversed(said().items()))).replace(b"500", b"500.0"),
        canonical(said()).replace(b'"nonce":"n1"', b'"nonce":"n0","nonce":"n1"'),
        canonical(said()).replace(b'"n1"', rb'"\u006e1"'),
        b"\xff" + canonical(said()),
        b"[" * 2900,
        b"",
    ],
)
def test_what_issue_never_writes_is_refused_even_if_signed(payload: bytes) -> None:
    refusal(signed(payload))


def test_the_bits_that_base64_leaves_over_must_be_zero() -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet.index(TEXT[-1])
    twins = [alphabet[last ^ bits] for bits in range(1, 4)]
    for twin in twins:
        decoded = base64.urlsafe_b64decode(TEXT.rpartition(".")[2][:-1] + twin + "=")
        assert decoded == base64.urlsafe_b64decode(TEXT.rpartition(".")[2] + "="), "no twin: the test shows nothing"
        refusal(TEXT[:-1] + twin)


def test_a_token_too_long_is_neither_issued_nor_read() -> None:
    with pytest.raises(ValueError, match=f"{MAX_TOKEN} are the most"):
        issue(dataclasses.replace(TOKEN, server="x" * 4000), RING)
    refusal(signed(canonical({**said(), "server": "x" * 4000})))
    refusal("ilk1.new." + "A" * 10_000_000 + "." + "A" * 43)


@pytest.mark.parametrize(
    "change", [{"expires_at": math.nan}, {"issued_at": math.inf}, {"nonce": 5}, {"server": "\ud800"}, {"nonce": None}]
)
def test_what_could_not_be_read_back_is_not_issued(change: dict) -> None:
    with pytest.raises((ValueError, TypeError)):
        issue(dataclasses.replace(TOKEN, **change), RING)


def test_an_older_key_verifies_what_it_signed() -> None:
    before = KeyRing(dataclasses.replace(OLD, not_after=None))
    assert read(issue(TOKEN, before), RING) == TOKEN
    assert read(issue(dataclasses.replace(TOKEN, expires_at=1000.0), before), RING).expires_at == 1000.0


def test_an_older_key_signs_nothing_that_outlives_it() -> None:
    stolen = KeyRing(dataclasses.replace(OLD, not_after=None))
    assert "replaced" in refusal(issue(dataclasses.replace(TOKEN, expires_at=1000.001), stolen)).detail


def test_a_key_that_is_gone_verifies_nothing() -> None:
    before = KeyRing(dataclasses.replace(OLD, not_after=None))
    assert "not known" in refusal(issue(TOKEN, before), KeyRing(NEW)).detail


def test_a_key_of_the_same_name_with_another_secret_verifies_nothing() -> None:
    refusal(TEXT, KeyRing(SigningKey("new", b"m" * 32)))


def test_a_keys_bytes_are_never_shown() -> None:
    ring = KeyRing(SigningKey("k", b"SECRETSECRETSECRETSECRETSECRET!!"))
    assert "SECRET" not in f"{ring!r} {ring} {ring.current!r}"


@pytest.mark.parametrize(
    ("key_id", "secret"), [("k", b"x" * 31), ("", b"x" * 32), ("a.b", b"x" * 32), ("k\n", b"x" * 32)]
)
def test_a_weak_or_odd_key_is_refused(key_id: str, secret: bytes) -> None:
    with pytest.raises(ValueError) as caught:
        SigningKey(key_id, secret)
    assert "xxxx" not in str(caught.value)


@pytest.mark.parametrize("now", [470.0, 500.0, 800.0, 800.499])
def test_a_token_in_time_is_in_time(now: float) -> None:
    check_time(TOKEN, now)


@pytest.mark.parametrize("now", [800.5, 801.0, 1e12, math.inf, math.nan])
def test_a_token_is_expired_from_its_last_moment_on_whatever_the_skew(now: float) -> None:
    with pytest.raises(BadTokenError, match="time is over") as caught:
        check_time(TOKEN, now, skew=30)
    assert caught.value.reason == "expired"


@pytest.mark.parametrize(
    ("now", "skew"), [(469.9, MAX_SKEW), (499.9, 0), (-1e9, MAX_SKEW), (469.0, 1e9), (499.0, math.nan)]
)
def test_a_token_from_the_future_is_refused_however_large_the_skew(now: float, skew: float) -> None:
    with pytest.raises(BadTokenError, match="future") as caught:
        check_time(TOKEN, now, skew)
    assert caught.value.reason == "expired"
