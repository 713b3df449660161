"""Strict JSON and JSON-RPC: one meaning, or a refusal with its reason."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.model import Kind
from proxy.errors import WireError
from proxy.wire.jsonrpc import (
    MAX_DEPTH,
    FoldedNames,
    is_id,
    parse_json,
    parse_message,
    reencode,
    refuse_misspelt,
    serialise,
)

INTEGERS = st.integers(-(10**20) + 1, 10**20 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)


def reason_of(data: bytes) -> str:
    with pytest.raises(WireError) as caught:
        parse_json(data)
    return caught.value.reason


@given(VALUES)
def test_any_value_survives_being_spelt_and_read(value: Any) -> None:
    read = parse_json(serialise(value))
    assert read == value
    assert repr(read) == repr(value)


@given(st.binary())
def test_no_bytes_make_the_reader_raise_anything_but_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        serialise(parse_json(data))


@given(st.text(alphabet='{}[]":,\\u0dD8e-+.1aNInf \t', max_size=40))
def test_no_json_like_text_makes_the_reader_raise_anything_but_a_wire_error(text: str) -> None:
    try:
        value = parse_json(text.encode())
    except WireError:
        return
    assert parse_json(serialise(value)) == value


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not_json"),
        (b"{", "not_json"),
        (b"{} {}", "not_json"),
        (b"{'a':1}", "not_json"),
        (b"[1,]", "not_json"),
        (b"// c\n{}", "not_json"),
        (b'"\x01"', "not_json"),
        (b"\x0b{}", "not_json"),
        (b"01", "not_json"),
        (b'"\\x41"', "not_json"),
        (b'{"a":1,"a":1}', "duplicate_key"),
        (b'{"name":1,"n\\u0061me":2}', "duplicate_key"),
        (b'[{"deep":{"a":1,"b":2,"a":3}}]', "duplicate_key"),
        (b"NaN", "not_finite"),
        (b"[Infinity]", "not_finite"),
        (b"-Infinity", "not_finite"),
        (b"1e400", "not_finite"),
        (b"-1e400", "not_finite"),
        (b"1" * 21, "integer_too_long"),
        (b"-" + b"1" * 21, "integer_too_long"),
        (b"1" * 5000, "integer_too_long"),
        (b"[" * 101 + b"]" * 101, "too_deep"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "too_deep"),
        (b"[" * 100_000, "too_deep"),
        (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
        (b'"\\ud800"', "lone_surrogate"),
        (b'{"\\udc00":1}', "lone_surrogate"),
        (b"\xef\xbb\xbf{}", "byte_order_mark"),
        (b'"\xff"', "not_utf8"),
        (b'"\xed\xa0\x80"', "not_utf8"),
        (b'"\xc0\xaf"', "not_utf8"),
        ("{}".encode("utf-16"), "not_utf8"),
        ("{}".encode("utf-16-le"), "not_json"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_has_two_meanings_is_refused(data: bytes, reason: str) -> None:
    assert reason_of(data) == reason


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b" \t\r\n{} \n", {}),
        (b"1" * 20, int("1" * 20)),
        (b"-" + b"1" * 20, -int("1" * 20)),
        (b"[" * 100 + b"]" * 100, json.loads("[" * 100 + "]" * 100)),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"\\u0000"', "\0"),
        (b"1.0", 1.0),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_has_one_meaning_is_read(data: bytes, value: Any) -> None:
    assert parse_json(data) == value


def test_many_brackets_that_are_not_deep_are_read() -> None:
    assert parse_json(b"[" + b"[]," * (2 * MAX_DEPTH) + b"[]]") == [[]] * (2 * MAX_DEPTH + 1)


def test_the_spelling_is_compact_utf8_with_keys_in_their_order() -> None:
    assert serialise({"b": [1, 2.5, None], "a": "é\u2028"}) == '{"b":[1,2.5,null],"a":"é\u2028"}'.encode()


def test_a_lone_surrogate_cannot_be_spelt() -> None:
    with pytest.raises(WireError, match="lone_surrogate"):
        serialise({"a": "\udc80"})


def test_numbers_that_are_not_finite_cannot_be_spelt() -> None:
    with pytest.raises(ValueError, match="JSON"):
        serialise(float("nan"))


@pytest.mark.parametrize(
    "value",
    [
        {"a": ["x", 1, 1.5, True, None]},
        "é",
        "\x7f",
        'q"\\\n\u2028',
        1e-7,
        1e16,
        2**70,
        -0.0,
        {"n": float("nan")},
        "\ud800",
    ],
)
def test_what_came_from_a_server_is_encoded_as_json_does_in_ascii(value: object) -> None:
    assert reencode(value) == json.dumps(value, separators=(",", ":")).encode()  # type: ignore[arg-type]


def test_a_servers_odd_value_can_be_spelt_anew() -> None:
    assert reencode({"a": "\udc80", "b": float("inf")}) == b'{"a":"\\udc80","b":Infinity}'


@pytest.mark.parametrize(
    ("value", "kind", "message_id"),
    [
        ({"jsonrpc": "2.0", "id": 1, "method": "ping"}, Kind.REQUEST, 1),
        ({"jsonrpc": "2.0", "id": "1", "method": "ping", "params": {}}, Kind.REQUEST, "1"),
        ({"jsonrpc": "2.0", "id": 0, "method": "ping", "extra": []}, Kind.REQUEST, 0),
        ({"jsonrpc": "2.0", "method": "notifications/initialized"}, Kind.NOTIFICATION, None),
        ({"jsonrpc": "2.0", "id": 1, "result": None}, Kind.RESPONSE, 1),
        ({"jsonrpc": "2.0", "id": 1, "error": {"code": 1}}, Kind.RESPONSE, 1),
    ],
)
def test_a_message_is_a_request_a_notification_or_a_response(value: Any, kind: Kind, message_id: Any) -> None:
    message = parse_message(value)
    assert (message.kind, message.id, message.method) == (kind, message_id, value.get("method"))
    assert message.value is value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([], "not_an_object"),
        ("x", "not_an_object"),
        (None, "not_an_object"),
        ({"id": 1, "method": "ping"}, "wrong_jsonrpc_version"),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, "wrong_jsonrpc_version"),
        ({"jsonrpc": 2.0, "id": 1, "method": "ping"}, "wrong_jsonrpc_version"),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, "bad_method"),
        ({"jsonrpc": "2.0", "id": 1, "method": None}, "bad_method"),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, "bad_params"),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": None}, "bad_params"),
        ({"jsonrpc": "2.0", "id": 1.0, "method": "ping"}, "bad_id"),
        ({"jsonrpc": "2.0", "id": None, "method": "ping"}, "bad_id"),
        ({"jsonrpc": "2.0", "id": True, "method": "ping"}, "bad_id"),
        ({"jsonrpc": "2.0", "id": [1], "method": "ping"}, "bad_id"),
        ({"jsonrpc": "2.0", "result": 1}, "bad_id"),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "result": 1}, "ambiguous_message"),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "error": {}}, "ambiguous_message"),
        ({"jsonrpc": "2.0", "id": 1, "result": 1, "error": {}}, "ambiguous_message"),
        ({"jsonrpc": "2.0", "id": 1}, "ambiguous_message"),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "Method": "tools/call"}, "misspelt_key"),
        ({"JSONRPC": "2.0", "id": 1, "method": "ping"}, "misspelt_key"),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "param\u017f": {}}, "misspelt_key"),
    ],
)
def test_what_is_not_one_plain_message_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        parse_message(value)
    assert caught.value.reason == reason


@pytest.mark.parametrize(("value", "expected"), [(1, True), ("", True), (True, False), (1.0, False), (None, False)])
def test_an_id_is_a_string_or_an_integer(value: Any, expected: bool) -> None:
    assert is_id(value) is expected


def test_a_key_of_another_name_is_no_misspelling() -> None:
    refuse_misspelt({"methods": 1, "x": 2}, FoldedNames("method"))
