"""The first look reads the very text that the whole way reads, and never calls something nothing."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.redact import Masker
from proxy.redact.decode import GROWTH, SLACK
from proxy.redact.document import Document, Text
from proxy.redact.glance import SMALL, flat, nothing_in
from proxy.redact.mask import _Masking

KEY = "AKIA" + "Z7QJ3LMNB4KXTW2V"
MASKER = Masker(b"k" * 32)
ALL = MASKER.catalogue.select(("secrets", "pii"))
PLAIN = [
    {},
    "hello",
    {"name": "get_weather", "arguments": {"city": "Paris", "path": "/workspace/a/long/path/notes.md", "days": 3}},
    {"content": [{"type": "text", "text": "fine " * 200}, {"type": "text", "text": "more"}], "isError": False},
    [["a", "b"], ["c", ["d"]], None, True, 1234567, 1.5e9],
    {"rate": "100%", "and": "R&D"},
]
ENCODED = (
    base64.b64encode(KEY.encode()).decode(),
    KEY.encode().hex(),
    " ".join(f"{byte:02x}" for byte in KEY.encode()),
)
PLAINLY = ("", "a", "Paris", KEY, KEY[:9], KEY[9:], "4111111111111111", "text", "2.0")
PIECES = st.sampled_from((*PLAINLY, *ENCODED, "%41", "\\x41", "&#x41;", "é", "\u200b"))
STRINGS = st.lists(PIECES, max_size=3).map("".join)
VALUES = st.recursive(
    STRINGS | st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.lists(st.integers(32, 126), min_size=13),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS | st.just("type"), inner, max_size=4),
    max_leaves=12,
)


def whole_text(value: Any) -> bytes:
    document = Document(value)
    return Text(document, [leaf.text.encode("utf-8", "surrogatepass") for leaf in document.leaves]).data


@pytest.mark.parametrize("value", PLAIN)
def test_plain_values_are_told_at_a_glance(value: Any):
    assert nothing_in(value, ALL, MASKER._scanner, (GROWTH, SLACK))
    assert MASKER.mask(value, ("secrets", "pii")) == (value, ())


@given(VALUES)
def test_what_is_looked_at_is_what_the_whole_way_looks_at(value: Any):
    assert flat(value) in {None, whole_text(value)}


@given(VALUES)
def test_nothing_that_the_whole_way_finds_is_called_nothing(value: Any):
    if nothing_in(value, ALL, MASKER._scanner, (GROWTH, SLACK)):
        assert _Masking(MASKER, value, ALL).run() == (value, ())


@pytest.mark.parametrize(
    "value",
    [
        {"key": KEY},
        {"a": KEY[:9], "b": KEY[9:]},
        {"a": base64.b64encode(KEY.encode()).decode()},
        {"a": base64.b64encode(base64.b64encode(KEY.encode())).decode()},
        {"a": KEY.encode().hex()},
        {"a": [*KEY.encode()]},
        {"a": "x" * SMALL + KEY},
        {"a": "%41" + KEY[1:]},
        10**5000,
    ],
    ids=range(9),
)
def test_what_may_hold_something_goes_the_whole_way(value: Any):
    assert not nothing_in(value, ALL, MASKER._scanner, (GROWTH, SLACK))
    assert MASKER.mask(value, ("secrets", "pii"))[1]


def test_a_part_by_itself_is_looked_at_too():
    """What is split over the first strings of a part has something else before it in the whole."""
    part = {"a": KEY[:9], "b": KEY[9:]}
    whole = {"name": "get_weather", "arguments": part}
    assert MASKER.mask(part, ("secrets",))[1]
    assert not MASKER.is_clean(whole, part, ("secrets",))
    assert MASKER.is_clean({"name": "x", "arguments": {"a": "b"}}, {"a": "b"}, ("secrets",))


@given(VALUES, VALUES)
def test_what_is_clean_as_a_whole_is_clean_in_part(name: Any, part: Any):
    value = {"name": name, "arguments": part, "_meta": name}
    if MASKER.is_clean(value, part, ("secrets", "pii")):
        assert _Masking(MASKER, value, ALL).run() == (value, ())
        assert _Masking(MASKER, part, ALL).run() == (part, ())
