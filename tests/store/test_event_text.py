"""Reading events for columns: whatever an event holds, what comes of it every database takes."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.store.event_text import PoisonError, clean, readable, segments, spelt, time_of

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["agent", "tool", "is_error", "gate_ms", "result_size", "arguments", "detail", "rules", "zzz"])


def plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(plain(item) for pair in value.items() for item in pair)
    if isinstance(value, list):
        return all(plain(item) for item in value)
    if isinstance(value, str):
        return "\0" not in value and value.encode().decode() == value
    return not isinstance(value, float) or math.isfinite(value)


@given(st.dictionaries(NAMES, ANY_JSON))
def test_whatever_an_event_holds_its_columns_are_plain_and_of_their_type(fields: dict[str, Any]) -> None:
    read = json.loads(readable(json.dumps(fields | {"event_id": "e", "kind": "k", "time": 1})))
    assert plain(read)
    assert (read["event_id"], read["kind"], read["time"]) == ("e", "k", 1.0)
    assert isinstance(read.get("agent", ""), str)
    assert isinstance(read.get("is_error", True), bool)
    assert isinstance(read.get("gate_ms", 0.0), (int, float))
    assert isinstance(read.get("result_size", 0), int)


@given(ANY_TEXT)
def test_a_text_that_is_no_event_is_poison(text: str) -> None:
    with pytest.raises(PoisonError):
        readable(text)


@given(ANY_JSON)
def test_cleaning_twice_is_cleaning_once(value: Any) -> None:
    assert clean(clean(value)) == clean(value)
    assert plain(clean(value))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("x", ["x"]),
        ("", [""]),
        ("3", ["3", 3]),
        ("-2.5e3", ["-2.5e3", -2500.0]),
        ("true", ["true", True]),
        ("null", ["null", None]),
        ("NaN", ["NaN"]),
        ("-Infinity", ["-Infinity"]),
        ("1e999", ["1e999"]),
        ('"x"', ['"x"']),
        ("[1]", ["[1]"]),
        ("{}", ["{}"]),
        ("\0", ["\ufffd"]),
        ("[" * 100_000, ["[" * 100_000]),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_a_value_is_its_text_and_what_it_spells(text: str, values: list[Any]) -> None:
    assert spelt(text) == values


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("a", ["a"]),
        ("a.b", ["a", "b"]),
        ("a[0].b", ["a", "0", "b"]),
        ("a.0.b", ["a", "0", "b"]),
        ('["a.b"].c', ["a.b", "c"]),
        ('a["x=]\\""][1]', ["a", 'x=]"', "1"]),
        ('q"', ['q"']),
        ("", [""]),
    ],
)
def test_a_path_is_taken_apart(path: str, parts: list[str]) -> None:
    assert segments(path) == parts


@pytest.mark.parametrize("path", ["a.", ".a", "a..b", "a[", "a]", "a[x]", "a[]", '["a"b', 'a["x"', "[0]a", '["\\x"]'])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"path|escape"):
        segments(path)


def test_the_beginning_of_an_id_says_about_when() -> None:
    first, last = time_of("019a7c1e-2f") or (0, 0)
    moment = 0x019A7C1E2F00 / 1000
    assert first < moment < last
    assert last - first < 9 * 86_400


@pytest.mark.parametrize("prefix", ["", "019a7c1", "event-019a7c1e", "019A7C1E2F", "00000000", "ffffffffffff", "é" * 8])
def test_other_beginnings_say_nothing_of_time(prefix: str) -> None:
    assert time_of(prefix) is None


def test_what_a_log_of_ours_writes_is_read_as_it_is() -> None:
    plainly = '{"event_id":"0e1","kind":"decided","time":1.5,"tool":"t","jsonrpc_id":1,"arguments":{"a":["1e5",2]}}'
    assert readable(plainly) is plainly
    for odd in ('{"a":1e999}', '{"a":[-1.5E999]}', r'"\u0000"', r'"\ud800"', "NaN"):
        assert plain(json.loads(readable(plainly.replace('{"a":["1e5",2]}', odd))))
