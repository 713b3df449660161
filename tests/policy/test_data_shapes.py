"""Words that are data: random, or a text in an encoding."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy.data_shapes import hidden_text, is_random

TEXT = "the report is due on friday"


@pytest.mark.parametrize("word", ["x7Kp2mQ9vR4sL8nW1bY6cT3fA0jH5dE", "Zx8Kq2VbN3mLp0Qr7TtYw5", "q9x8v7k2m3w4z1b6"])
def test_letters_and_digits_drawn_at_random_are_random(word):
    assert is_random(word)


@pytest.mark.parametrize(
    "word",
    [
        "internationalisation",
        "getUserProfileByOrganizationId",
        "requests-2.32.3-py3-none-any",
        "550e8400-e29b-41d4-a716-446655440000",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "20261118123000000000",
        "my-app-git-feature-login-acme",
        "short1A",
    ],
)
def test_names_hashes_numbers_and_short_words_are_not(word):
    assert not is_random(word)


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.b32encode, base64.urlsafe_b64encode, bytes.hex])
def test_a_text_is_found_to_four_encodings_deep(encode, rounds):
    word = TEXT
    for _ in range(rounds):
        encoded = encode(word.encode())
        word = encoded if isinstance(encoded, str) else encoded.decode()
    assert hidden_text(word) == TEXT


@pytest.mark.parametrize(
    "word", ["documentation", base64.b64encode(bytes(range(128, 190))).decode(), "deadbeef" * 5, ""]
)
def test_what_decodes_to_no_text_hides_none(word):
    assert hidden_text(word) is None


@given(st.text())
def test_any_text_is_judged(word):
    is_random(word)
    hidden_text(word)
