"""Names, words and paths surprise little; what was drawn at random surprises at every step."""

from __future__ import annotations

import random
import string

import pytest

from proxy.core.randomness import surprise

NAMES = (
    *("settings.DATABASE_PASSWORD", "application-configuration", "getElementsByTagName", "XMLHttpRequest"),
    *("/usr/share/doc/python3.12/README", "test_what_is_called_noise", "useLayoutEffectOnServer", "utf8_general_ci"),
    *("org.springframework.security.core", "MAX_CONNECTIONS_PER_HOST", "2024-05-17T12:30:00Z", "correct horse battery"),
)
ALPHABETS = (string.ascii_letters + string.digits, string.ascii_lowercase + string.digits, string.ascii_letters)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_person_writes_surprises_little(name: str):
    assert surprise(name.encode()) < 5.2


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_what_is_drawn_at_random_surprises(alphabet: str):
    source = random.Random(4)
    drawn = ["".join(source.choices(alphabet, k=24)).encode() for _ in range(1000)]
    assert sum(surprise(text) >= 5.2 for text in drawn) > 950


@pytest.mark.parametrize("value", [b"", b"a", bytes(range(256))])
def test_any_bytes_have_a_figure(value: bytes):
    assert 0 <= surprise(value) <= 15
