"""Which single values count: those that say something by themselves, and not the dates and amounts of every call."""

from __future__ import annotations

import time

import pytest

from proxy.flows.telling_values import KINDS, MAX_VALUES, short_words, values_in


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("mail greta.holm@nightjar.example now", "emails", b"gretaholmnightjarexample"),
        ("see https://www.example.com/a/b?c=1.", "urls", b"examplecomabc1"),
        ("www.evil-site-234.com/x", "urls", b"evilsite234comx"),
        ("your code is 463820.", "numbers", b"463820"),
        ("card 4237-4252-7456-2574", "numbers", b"4237425274562574"),
        ("call +47 912 34 567", "numbers", b"4791234567"),
        ("passport HGK137803", "ids", b"hgk137803"),
        ("GB29 NWBK 6016 1331 9268 19", "ids", b"gb29nwbk60161331926819"),
        ("id 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "ids", b"3f2504e04f8911d39a0c0305e82c3301"),
        ("from Greta Holm, today", "names", b"gretaholm"),
    ],
)
def test_a_value_is_found(text: str, kind: str, value: bytes) -> None:
    assert (KINDS.index(kind), value) in values_in(text, KINDS)


@pytest.mark.parametrize(
    "text",
    [
        "on 2024-05-15 at 10:30",
        "2024-05-15T10:30:00.000",
        "15.05.2024",
        "it costs 1200.50 or 99",
        "in 2024 there were 12345",
        "version 1.2.3 of utf8",
        "the third week of October",
        "10km, 5 GB and 30min",
        "see https://github.com and www.example.com",
    ],
)
def test_what_every_call_has_is_none(text: str) -> None:
    assert values_in(text) == set()


def test_digits_of_what_goes_out_count_with_anything_between() -> None:
    assert b"463820" in short_words("4 6 3 8 2 0")
    assert b"463820" in short_words("4.6.3.8.2.0 is it")
    assert b"463820" in short_words("x463820y")
    assert short_words("2024-05-15") == set()


@pytest.mark.parametrize("text", ["AB12 " * 20_000, "a" * 200_000, "1 " * 100_000, "x@" * 100_000, "A" * 50_000 + "!"])
def test_no_text_takes_long_and_no_text_brings_very_many(text: str) -> None:
    began = time.process_time()
    found = values_in(text, KINDS)
    assert time.process_time() - began < 3
    assert len(found) <= MAX_VALUES
