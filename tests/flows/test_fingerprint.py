"""Fingerprints: the same for the same text, of no use without the key, and dense enough for what they promise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.flows.fingerprint import (
    MAX_KEPT,
    Fingerprinter,
    disguises,
    least_run,
    normalise,
    runs_in,
)

ONE, OTHER = Fingerprinter(b"1" * 32), Fingerprinter(b"2" * 32)
WORDS = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789", min_size=200, max_size=400)


def test_a_text_is_reduced_to_its_letters_and_digits() -> None:
    assert normalise("Hello, World-42!\n") == b"helloworld42"
    assert normalise("\uff28\uff45\uff4c\uff4c\uff4f\u200b \xe9") == b"helloe"
    assert normalise("\u043d\u0430\u0448 \u043f") == normalise("\u041d\u0410\u0428-\u041f")


def test_two_keys_have_nothing_in_common() -> None:
    plain = b"the quick brown fox jumps over the lazy dog"
    assert ONE.keep(plain).runs.isdisjoint(OTHER.keep(plain).runs)
    assert ONE.key_id != OTHER.key_id
    with pytest.raises(ValueError, match="32 bytes"):
        Fingerprinter(b"short")


def test_repeated_characters_say_nothing() -> None:
    assert ONE.keep(b"a" * 400).runs == frozenset()
    assert ONE.keep(b"xy" * 200).runs == frozenset()


def test_a_long_text_is_sampled_and_says_so() -> None:
    plain = "".join(f"word{number}" for number in range(60_000)).encode()
    kept = ONE.keep(plain)
    assert not kept.complete
    assert len(kept.runs) <= MAX_KEPT
    assert ONE.keep(plain[:60_000]).complete
    # It is sampled all over.
    assert kept.runs & set(ONE.every([plain[-3000:]]))


@settings(max_examples=30, deadline=None)
@given(WORDS, st.integers(0, 150), st.integers(1, 3))
def test_every_piece_of_that_length_holds_so_many_kept_runs(text: str, start: int, count: int) -> None:
    plain = text.encode()
    piece = plain[start : start + least_run(count)]
    kept = set(ONE.keep(plain).runs) | ONE._dull
    found = {run for run in ONE.every([piece]) if run in kept}
    dull = len(set(plain[start : start + 60])) < 8
    assert runs_in(least_run(count)) == count
    assert len(found) >= count or dull or len(set(plain)) < 12


@pytest.mark.parametrize(
    "value", [b"884213", b"nj2291xk", b"nj2291xk7", b"x" * 7 + b"1234567", b"gb29nwbk60161331926819"]
)
def test_a_value_is_found_wherever_it_stands(value: bytes) -> None:
    ((first, last),) = ONE.keep(b"", [(3, value)]).values
    assert last % 8 == 3
    every = ONE.every([b"some" + value + b"thing"], [value])
    assert first in every
    assert last & -8 in {each & -8 for each in every}


def test_disguises_are_told() -> None:
    assert list(disguises(b"abc1")) == [b"abc1", b"1cba"]
    assert ONE.every([b"nop1nop1"]) == ONE.every([b"abc1abc1"]), "letters moved by 13"
