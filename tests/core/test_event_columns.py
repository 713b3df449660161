"""Reading events for columns: whatever an event holds, what comes of it every database takes."""

from __future__ import annotations

import json
import math
from typing import Any

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core import event_columns
from proxy.core.event_columns import COLUMNS, VALUES, PoisonError, clean, columns, encoded, readable, segments, time_of
from proxy.core.json_codec import encode_fast, encode_json

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


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 10**25])
def test_an_id_of_more_than_64_bits_stays_what_it_is(number: int) -> None:
    body = json.dumps({"event_id": "e", "kind": "k", "time": 1, "jsonrpc_id": number})
    [(read,)] = apsw.Connection("").execute("SELECT ? ->> 'jsonrpc_id'", (readable(body),))
    assert read == str(number)


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
    assert encoded(text) == values


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


PLAINLY = {
    "event_id": "e",
    "kind": "decided",
    "time": 1.5,
    "authenticated": False,
    "jsonrpc_id": 1,
    "tool": "t" * 200,
    "decision": "allow",
    "rules": ["é", "\x1b"],
    "gate_ms": 0.25,
    "result_size": 1 << 62,
    "arguments": {"a": ["1e5", 2, 1e-7, 1e22, -0.0, {}, [], None], "\u2028": "\x7f\\"},
    "detail": {"n": 1 << 63},
}
EVENT = '{{"event_id":"e","kind":"k","time":1.5,"arguments":{}}}'


def as_we_spell(event: dict[str, Any]) -> str:
    quick = encode_fast(event)
    return encode_json(event) if quick is None else quick.decode()


def test_what_a_log_of_ours_writes_is_read_by_the_fast_way() -> None:
    read = event_columns._plain_columns(as_we_spell(PLAINLY | {"arguments": {"a": [1e-7, 1e22, -0.0, {}, "\x7f\\"]}}))
    assert read is not None
    assert dict(zip(COLUMNS, read, strict=True))["rules"] == '["é","\\u001b"]'
    for odd in ('{"a":1e999}', '{"a":[-1.5E999]}', r'"\u0000"', r'"\ud800"', "NaN"):
        body = EVENT.format(odd)
        assert plain(json.loads(readable(body)))
        assert event_columns._plain_columns(body) is None


ODDLY: st.SearchStrategy[Any] = (
    ANY_JSON
    | st.integers(-1 << 70, 1 << 70)
    | st.sampled_from(["x" * 300, "\0", "\ud800", {"proposal_id": 5}, 1 << 64])
)


@given(st.dictionaries(st.sampled_from((*COLUMNS, "zzz")), ODDLY, max_size=4), st.booleans())
@example({}, True)
@example({"arguments": {"n": 1 << 64}, "tool": '{"n":1.8446744073709552e19}'}, True)
@example({"detail": {"proposal_id": "p"}}, True)
@example({"decision": "x" * 17, "total_ms": 5}, True)
@example({"arguments": [[[]] * 3], "call_id": True}, True)
def test_the_fast_way_and_the_slow_way_agree_on_every_column(fields: dict[str, Any], ours: bool) -> None:
    """However the text is spelt; JSON in columns is compared as what it says, to the last digit."""
    event = PLAINLY | fields
    body = as_we_spell(event) if ours else json.dumps(event)
    try:
        slow = event_columns._columns(event_columns._known(body))
    except PoisonError:
        assert event_columns._plain_columns(body) is None
        return
    assert _meant(columns(body)) == _meant(slow)


def _meant(values: list[Any]) -> list[Any]:
    """Spell out JSON values, so that no two that differ are equal."""
    return [
        repr(json.loads(value)) if name in VALUES and value is not None else repr(value)
        for name, value in zip(COLUMNS, values, strict=True)
    ]


@pytest.mark.parametrize("depth", [250, 300, 900, 5000])
def test_what_is_nested_too_deep_is_poison_and_the_rest_a_database_reads(depth: int) -> None:
    body = EVENT.format("[" * depth + "]" * depth)
    try:
        text = dict(zip(COLUMNS, columns(body), strict=True))["arguments"]
    except PoisonError:
        assert depth > 500
    else:
        assert apsw.Connection("").execute("SELECT json_type(?)", (text,)).fetchall() == [("array",)]
