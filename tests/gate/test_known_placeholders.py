"""Known placeholders are left alone by every detector; what only looks like one is not."""

from __future__ import annotations

import pytest

from proxy.gate.known_placeholders import PlaceholderRedactor
from proxy.redact import Masker, builtin

HELD = "ghp_ilkphABCDEFGHIJKLMNOPQRSTUVWXYZ23456"
SECRET = "ghp_" + "Zx8Kq2" * 6
DETECTORS = ("secrets", "pii", "custom")


@pytest.fixture(scope="module")
def masker() -> Masker:
    return Masker(b"k" * 32, builtin())


def test_a_known_one_is_no_secret_and_another_is(masker: Masker) -> None:
    redactor = PlaceholderRedactor(masker, lambda: frozenset({HELD}))
    value = {"a": HELD, "b": [f"x {HELD} y", 1], "password": HELD, "u": f"https://u:{HELD}@x.test/"}
    assert masker.mask(value, DETECTORS)[1]
    assert redactor.mask(value, DETECTORS) == (value, ())
    other = HELD[:-1] + "7"
    masked, found = redactor.mask({"a": other}, DETECTORS)
    assert other not in str(masked)
    assert [each.detector for each in found] == ["secrets.github-token"]


def test_a_secret_beside_it_is_found(masker: Masker) -> None:
    redactor = PlaceholderRedactor(masker, lambda: frozenset({HELD}))
    masked, found = redactor.mask({"a": f"{HELD} {SECRET}", "b": HELD}, DETECTORS)
    assert isinstance(masked, dict)
    assert masked["b"] == HELD
    assert str(masked["a"]).startswith(f"{HELD} [secret:github-token")
    assert len(found) == 1


def test_where_no_stand_in_is_free_it_counts_as_a_secret(masker: Masker) -> None:
    redactor = PlaceholderRedactor(masker, lambda: frozenset({HELD}))
    masked, found = redactor.mask({"a": HELD, "b": "${ILKPH_0}"}, DETECTORS)
    assert found
    assert HELD not in str(masked)


def test_without_findings_nobody_is_asked(masker: Masker) -> None:
    def known() -> frozenset[str]:
        raise AssertionError

    redactor = PlaceholderRedactor(masker, known)
    assert redactor.mask({"a": "b"}, DETECTORS) == ({"a": "b"}, ())
    assert redactor.is_clean({"a": "b"}, {"a": "b"}, DETECTORS)
    assert not redactor.is_clean({"a": HELD}, {"a": HELD}, DETECTORS)
