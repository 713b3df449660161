"""The compiled reader: what it gives is what the strict reader gives, or it gives nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core import json_codec
from proxy.core.json_codec import LIMIT, encode_canonical, encode_fast, encode_json, read_quickly
from proxy.errors import WireError
from proxy.wire import jsonrpc
from proxy.wire.jsonrpc import parse_json
from tests.bypass.cases import CASES
from tests.bypass.shot import Aim, benign_shot, denied_shot
from tests.wire.test_jsonrpc import VALUES

# Pieces of which hostile JSON is made.
PIECES = (
    *'{}[]:,"',
    *('"a"', '"a":', '"\\u0061":', '"b":', '"\\u0022"', '"\\""', '"\\\\u0022"', '"\\\\"', '"é"', '"\\ud83d\\ude00"'),
    *("0", "-0", "1.0", "1e5", "1E-7", "-0.0", "1e400", "01", "9223372036854775808", "18446744073709551616", "1" * 21),
    *("true", "null", "NaN", " ", "\n", "\t", "\ufeff", "\0", "\\ud800", '"e+"', "1e16", "-9223372036854775809"),
)


def strictly(data: bytes) -> Any:
    """Read without the compiled reader; return the reason of a refusal as text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonrpc, "read_quickly", lambda _: None)
        return outcome(data)


def outcome(data: bytes) -> Any:
    try:
        return repr(parse_json(data))  # tells 1 from 1.0 and from True, and keys in their order
    except WireError as error:
        return error.reason


def check(data: bytes) -> None:
    expected = strictly(data)
    assert outcome(data) == expected
    read = read_quickly(data)
    if read is not None and expected != "too_deep":
        value, encoded = read
        assert repr(value) == expected
        assert strictly(encoded) == expected


@settings(max_examples=400)
@given(VALUES, st.sampled_from([(", ", ": "), (",", ":"), (" ,\n", "\t: ")]), st.booleans())
def test_whatever_way_a_value_is_written_it_is_read_as_the_strict_reader_reads_it(
    value: Any, separators: tuple[str, str], ascii_only: bool
) -> None:
    check(json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode())


@settings(max_examples=600)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=20), st.booleans())
def test_hostile_pieces_are_read_alike_or_refused_for_the_same_reason(text: str, inside: bool) -> None:
    check((f'{{"a":{text}}}' if inside else text).encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=40))
def test_any_bytes_are_read_alike(data: bytes) -> None:
    check(data)


def test_a_body_with_members_written_twice_at_random_is_refused_by_both() -> None:
    source = random.Random(7)
    names = ["a", "b", 'c"d', "\\u0061", "\\u0022", "é", "\\\\", "e+"]
    for _ in range(3000):
        members = [f'"{source.choice(names)}": {source.choice(PIECES[7:])}' for _ in range(source.randint(0, 5))]
        check(f"{{{', '.join(members)}}}".replace('c"d', 'c\\"d').encode())


def bypass_bodies() -> Iterator[bytes]:
    aim = Aim("direct", 1, 1)
    for case in CASES:
        for shot in (denied_shot(case, aim, "m"), benign_shot(case, aim, "m")) if case.build else ():
            built = case.build(shot) if case.build else b""
            sent = built if isinstance(built, bytes) else b"".join(part for part in built if isinstance(part, bytes))
            yield sent.partition(b"\r\n\r\n")[2]


def test_the_bodies_of_the_bypass_suite_are_read_alike() -> None:
    bodies = set(bypass_bodies())
    assert len(bodies) > 200
    for body in bodies:
        check(body)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":2}',
        b'{"a": 1, "a": "\\u0022\\u0022"}',  # as many quotes as what is left of it
        b'[{"b":{"a":{},"a":[]}}]',
        b'{"n":18446744073709551616}',
        b'{"n": -9223372036854775809}',
        b'"' + b"x" * LIMIT + b'"',
    ],
    ids=lambda data: data[:40],
)
def test_what_may_differ_is_left_to_the_strict_reader(data: bytes) -> None:
    assert read_quickly(data) is None


@pytest.mark.parametrize("data", [b'{"a":1}', b'{"a": [1.5, null, "\\u00e9 \\" \\n"], "b": {"a": -0.0}}', b"[]"])
def test_plain_bodies_take_the_quick_way(data: bytes) -> None:
    assert read_quickly(data) is not None


@settings(max_examples=300)
@given(VALUES)
@example([1e-5, "e-"])
@example({"a": [-9.999e-5], "b": 1e-7})
@example([1e16, 5e-324, 1e15, 0.0001, -0.0])
def test_what_is_hashed_has_one_spelling(value: Any) -> None:
    """So that a hash of it says whether two calls had the same arguments, however large the rest of them was."""
    assert encode_canonical(value) in (None, encode_json(value, allow_nan=False).encode())


@settings(max_examples=300)
@given(VALUES)
def test_a_quick_spelling_is_of_the_same_value(value: Any) -> None:
    encoded = encode_fast(value)
    assert encoded is None or strictly(encoded) == strictly(encode_json(value, allow_nan=False).encode())


@pytest.mark.parametrize(
    "value",
    [float("nan"), [None, float("inf")], {"a": (float("-inf"),)}, "\ud800", {1: 2}, 1 << 64, object()],
)
def test_what_json_spells_otherwise_or_not_at_all_is_left_to_it(value: Any) -> None:
    assert encode_fast(value) is None
    assert encode_canonical(value) is None


def test_a_reader_that_writes_exponents_in_another_way_only_costs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json_codec._EXPONENT in orjson_spelling(float(1 << 64))
    assert json_codec._EXPONENT in orjson_spelling(float(-(1 << 63) - 1))
    monkeypatch.setattr(json_codec, "_EXPONENT", b"e")
    check(b'{"n": 18446744073709551616}')


def orjson_spelling(value: float) -> bytes:
    return json_codec.orjson.dumps(value)
