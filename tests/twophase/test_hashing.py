"""The hash of arguments: one for one value, another for any other."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core.model import Json
from proxy.errors import WireError
from proxy.twophase.hashing import NotExactError, hash_arguments
from proxy.wire.jsonrpc import parse_json, serialise

EXACT = 2**53 - 1
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
leaves = (
    st.none() | st.booleans() | st.integers(-EXACT, EXACT) | st.floats(allow_nan=False, allow_infinity=False) | text
)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4))
objects = st.dictionaries(text, values, max_size=5)


def same(a: Any, b: Any) -> bool:
    """Whether two values are one in JSON: true is not 1, but 1.0 is."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b)


def shuffled(value: Any) -> Any:
    """The same value with its keys in another order and its numbers of another type."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [shuffled(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, float) and value.is_integer() and abs(value) <= EXACT:
        return int(value)
    return value


def test_the_hash_is_over_canonical_json() -> None:
    encoded = '{"a":[1e+30,0.000001,1e-7,true,null],"b":"\u20ac\\n\\u000f\\"","\U0001f600":1,"\ufb33":2}'
    arguments = {"\ufb33": 2, "\U0001f600": 1, "b": '€\n\x0f"', "a": [1e30, 1e-6, 1e-7, True, None]}
    assert hash_arguments(arguments) == hashlib.sha256(encoded.encode()).hexdigest()


def test_a_call_without_arguments_is_a_call_with_none() -> None:
    assert hash_arguments(None) == hash_arguments({}) == hashlib.sha256(b"{}").hexdigest()


@pytest.mark.parametrize("spelling", ["1", "1.0", "1e0", "10e-1", "1.000"])
def test_a_number_has_one_hash_however_it_is_spelt(spelling: str) -> None:
    assert hash_arguments(json.loads(f'{{"n":{spelling}}}')) == hash_arguments({"n": 1})


def test_zero_has_no_sign() -> None:
    assert hash_arguments({"n": -0.0}) == hash_arguments({"n": 0})


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"a": 1}, {"a": True}),
        ({"a": 0}, {"a": False}),
        ({"a": 1}, {"a": "1"}),
        ({"a": None}, {}),
        ({"a": ""}, {"a": None}),
        ({"a": []}, {"a": {}}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": [[1], 2]}, {"a": [1, [2]]}),
        ({"a": "é"}, {"a": "e\u0301"}),
        ({"a": 0.1}, {"a": 0.1 + 1e-17 * 2}),
        ({"a": EXACT}, {"a": EXACT - 1}),
        ({"a": {"b": 1}, "c": 2}, {"a": {"b": 1, "c": 2}}),
    ],
)
def test_other_values_have_other_hashes(one: dict, two: dict) -> None:
    assert hash_arguments(one) != hash_arguments(two)


@settings(deadline=None)
@given(objects)
def test_the_order_of_keys_and_the_type_of_numbers_do_not_count(arguments: dict) -> None:
    assert hash_arguments(shuffled(arguments)) == hash_arguments(arguments)


@settings(deadline=None)
@given(objects, objects)
def test_hashes_are_equal_exactly_where_values_are(one: dict, two: dict) -> None:
    assert (hash_arguments(one) == hash_arguments(two)) is same(one, two)


def neighbours(encoded: bytes) -> Iterator[bytes]:
    """Every text that differs from `spelt` in one byte, of those that a byte of JSON is likely to become."""
    for place in range(len(encoded)):
        for byte in b'0159-.eE,:"\\[]{} antfl' + bytes([encoded[place] ^ 0x20, encoded[place] ^ 1]):
            if byte != encoded[place]:
                yield encoded[:place] + bytes([byte]) + encoded[place + 1 :]


def hash_if_exact(encoded: bytes) -> tuple[Json, str | None]:
    value = parse_json(encoded)
    try:
        return value, hash_arguments(value)  # type: ignore[arg-type]
    except NotExactError:
        return value, None  # refused is as good as different


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(text, leaves | st.lists(leaves, max_size=2), max_size=2))
@example({"amount": 100, "to": "acc-1", "urgent": True, "notes": ["a", None, 1.5e-9]})
def test_a_changed_byte_that_makes_another_value_makes_another_hash(arguments: dict) -> None:
    hashed = hash_arguments(arguments)
    for encoded in neighbours(serialise(arguments)):
        with contextlib.suppress(WireError):
            value, found = hash_if_exact(encoded)
            assert (found == hashed) is same(value, arguments), encoded


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"a": 2**53}, "$.a is an integer past 2^53"),
        ({"a": {"b": [0, -(2**53)]}}, "$.a.b[1] is an integer past 2^53"),
        ({"a": math.nan}, "$.a is not a finite number"),
        ({"a": [math.inf]}, "$.a[0] is not a finite number"),
        ({"a": "x\ud800"}, "$.a holds half a surrogate pair"),
        ({"a": {"\udfff": 1}}, "$.a: a key holds half a surrogate pair"),
        ({"a": b"x"}, "$.a is a bytes, not JSON"),
        ({"a": {1: 2}}, "the arguments are not JSON"),
        ({"a\n": 2**60}, "$.a\\n is an integer"),
    ],
)
def test_what_is_not_exact_is_refused_by_its_place(arguments: dict, complaint: str) -> None:
    with pytest.raises(NotExactError) as caught:
        hash_arguments(arguments)
    assert str(caught.value).startswith(complaint)


def test_a_refusal_names_no_value() -> None:
    with pytest.raises(NotExactError) as caught:
        hash_arguments({"key": "hunter2\ud800"})
    assert "hunter2" not in str(caught.value)


def test_nesting_without_end_is_refused() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotExactError, match="too deep"):
        hash_arguments({"a": deep})
    while isinstance(deep, list):  # let go of it step by step
        deep = deep.pop()


def test_a_place_without_end_is_cut() -> None:
    deep: Any = 2**60
    for _ in range(90):
        deep = {"k" * 500: deep}
    with pytest.raises(NotExactError) as caught:
        hash_arguments(deep)
    assert len(str(caught.value)) < 500
