"""Sessions end: by time, by logout, and at once when their operator is revoked."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.console import sessions
from proxy.console.operators import Operators
from proxy.console.sessions import GRANTED_SECONDS, IDLE_SECONDS, LONGEST_SECONDS, Sessions, is_csrf_of
from proxy.core.approvals import Role
from proxy.identity.token_file import OperatorTokens


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def tokens(tmp_path: Path) -> OperatorTokens:
    made = OperatorTokens(tmp_path)
    made.add("ann")
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def made(tokens: OperatorTokens, clock: Clock) -> Sessions:
    return Sessions(Operators(tokens), clock)


def opened(made: Sessions) -> str:
    secret = made.open("ann")
    assert secret is not None
    return secret


def test_a_session_is_found_by_its_secret_alone(made: Sessions) -> None:
    secret = opened(made)
    found = made.find(secret)
    assert found is not None
    assert found.operator == "ann"
    assert is_csrf_of(found, found.csrf)
    assert not is_csrf_of(found, "")
    assert made.find("") is None
    assert made.find(secret[:-1]) is None
    assert made.open("bob") is None


def test_a_session_that_nobody_uses_ends(made: Sessions, clock: Clock) -> None:
    secret = opened(made)
    clock.now = IDLE_SECONDS - 1
    assert made.find(secret) is not None
    clock.now = 2 * IDLE_SECONDS - 2
    # What a browser does by itself is no use.
    assert made.find(secret, seen=False) is not None
    clock.now = 2 * IDLE_SECONDS
    assert made.find(secret) is None


def test_a_session_ends_however_much_it_is_used(made: Sessions, clock: Clock) -> None:
    secret = opened(made)
    while clock.now < LONGEST_SECONDS - 60:
        clock.now += 60
        assert made.find(secret) is not None
    clock.now = LONGEST_SECONDS
    assert made.find(secret) is None


def test_a_revoked_operator_is_out_at_once_and_stays_out(made: Sessions, tokens: OperatorTokens) -> None:
    secret = opened(made)
    session = made.find(secret)
    assert session is not None
    tokens.revoke("ann")
    assert not made.lives(session)
    tokens.add("ann")
    assert made.find(secret) is None


def test_logout_ends_a_session(made: Sessions) -> None:
    secret = opened(made)
    made.end(secret)
    assert made.find(secret) is None


def test_sessions_are_bounded_and_the_longest_unused_goes(
    made: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    secrets = []
    for number in range(4):
        clock.now = number
        secrets.append(opened(made))
    assert [made.find(secret) is not None for secret in secrets] == [False, True, True, True]


def test_a_granted_session_ends_after_an_hour_and_when_the_file_gets_that_name(
    made: Sessions, tokens: OperatorTokens, clock: Clock
) -> None:
    assert made.open("bob") is None
    secret = made.open("bob", Role.VIEWER)
    assert secret is not None
    while clock.now + 600 < GRANTED_SECONDS:
        clock.now += 600
        assert made.find(secret) is not None
    clock.now = GRANTED_SECONDS
    assert made.find(secret) is None
    other = made.open("bob", Role.VIEWER)
    assert other is not None
    tokens.add("bob")
    assert made.find(other) is None
