"""What was found once is found everywhere, unless it could be an ordinary word."""

from __future__ import annotations

import time

import pytest

from proxy.redact.repeats import KnownSecrets

TOKEN = b"x7Kd92mQ4zP1"


def found(secret: bytes, data: bytes) -> list[bytes]:
    known: KnownSecrets[str] = KnownSecrets()
    known.add(secret, "here")
    return [data[start:end] for start, end, _ in known.found_in(data)]


@pytest.mark.parametrize(
    "data",
    [
        b"x7Kd92mQ4zP1",
        b"user:x7Kd92mQ4zP1@host",
        b"'x7Kd92mQ4zP1'",
        b"a_x7Kd92mQ4zP1_b",
        b"see x7Kd92mQ4zP1.",
        b"\nx7Kd92mQ4zP1\n",
    ],
)
def test_a_secret_is_found_whatever_signs_stand_beside_it(data: bytes):
    assert found(TOKEN, data) == [TOKEN]


@pytest.mark.parametrize("data", [b"", b"x7Kd92mQ4zP", b"ax7Kd92mQ4zP1", b"x7Kd92mQ4zP1b", b"X7KD92MQ4ZP1"])
def test_part_of_a_longer_word_is_another_word(data: bytes):
    assert found(TOKEN, data) == []


@pytest.mark.parametrize(
    "secret", [b"p@ss-W0rd!(x)", b"$2a$10$abcdEFGH12", b"-----BEGIN x7Kd92mQ4z", b"...x7Kd9..2mQ4"]
)
def test_signs_in_a_secret_are_part_of_it(secret: bytes):
    assert found(secret, b"one " + secret + b" two") == [secret]


@pytest.mark.parametrize(
    "secret", [b"password", b"test123", b"administrator", b"12345678", b"!!!!!!!!!!", b"a.b.c.d.e.1"]
)
def test_what_may_be_an_ordinary_word_is_left_alone(secret: bytes):
    assert found(secret, b"the " + secret + b" is here") == []


def test_each_place_knows_where_its_secret_came_from():
    known: KnownSecrets[int] = KnownSecrets()
    secrets = [b"token%dx7Kd92mQ4z" % number for number in range(100)]
    for number, secret in enumerate(secrets):
        known.add(secret, number)
        known.add(secret, -1)  # the first origin counts
    data = b" ".join(secrets)
    assert [origin for *_, origin in known.found_in(data)] == [*range(100)]


def test_many_secrets_that_are_alike_cost_no_more_than_the_text_is_long():
    known: KnownSecrets[int] = KnownSecrets()
    for number in range(20_000):
        known.add(b"commonWord9.%d.x" % number, number)
    data = b"commonWord9 " * 100_000
    start = time.thread_time()
    assert list(known.found_in(data)) == []
    assert time.thread_time() - start < 5, "one look-up of each word, and not of each secret"


def test_it_is_known_whether_a_secret_could_be_encoded_in_what_is_called_noise():
    known: KnownSecrets[str] = KnownSecrets()
    known.add(TOKEN, "here")
    assert known.all_text
    known.add("\u00df\u00e91a2b\u00df\u00e99z8y".encode(), "there")
    assert not known.all_text
