"""Values are spelt as what they are, large ones too, and other threads get their turn meanwhile."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core import json_codec
from proxy.core.json_codec import LONG, MANY, encode_fast, encode_json
from proxy.core.model import AuditEvent

TEXT = "".join(map(chr, range(300))) + "\u2028\U0001f600\ud83d\ude00"
LARGE: list[Any] = [
    TEXT * 300,
    "x" * (LONG + 1),
    "".join(map(chr, range(128))) * 1000,
    {"a": [{"b": "y\n" * LONG}, 1, None], "c": {}},
    list(range(5 * MANY + 3)),
    {f"k{number}": [number, "\n"] for number in range(3 * MANY)},
    [[[[[[[[[["deep" * LONG]]]]]]]]]],
    {1: "x" * (LONG + 1)},
]


@pytest.mark.parametrize("ensure_ascii", [True, False])
@pytest.mark.parametrize("value", LARGE)
def test_a_large_value_is_spelt_as_json_dumps_spells_it(value: Any, ensure_ascii: bool):
    expected = json.dumps(value, ensure_ascii=ensure_ascii, separators=(",", ":"))
    assert encode_json(value, ensure_ascii=ensure_ascii) == expected


ANY_TEXT = st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-1 << 70, 1 << 70) | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(ANY_TEXT, inner, max_size=6),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_any_value_is_spelt_alike_wherever_the_bounds_are(value: Any, ensure_ascii: bool):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_codec, "LONG", 1)
        patch.setattr(json_codec, "MANY", 2)
        expected = json.dumps(value, ensure_ascii=ensure_ascii, separators=(",", ":"))
        assert encode_json(value, ensure_ascii=ensure_ascii) == expected


@given(VALUES)
@example(1e-7)
@example([None, float("nan")])
@example({"a": (1 << 64) - 1, "b": 1 << 64, "c": -(1 << 63) - 1})
@example("\x00\x1e\x7f\x80\u2028\ud800\U0001f600")
def test_any_value_is_read_back_as_it_was(value: Any):
    """By its repr: so is a number that is none, an integer of any size, and the sign of zero."""
    assert repr(json.loads(encode_json(value))) == repr(value)
    if (quick := encode_fast(value)) is not None:
        assert repr(json.loads(quick)) == repr(value)


EVENT = AuditEvent(event_id="e", kind="k", time=1.0)


@pytest.mark.parametrize("odd", [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), EVENT, {1}, b"x"])
def test_what_is_no_json_is_refused(odd: object):
    assert encode_fast({"odd": [odd]}) is None
    with pytest.raises(TypeError):
        encode_json({"odd": [odd]})


@pytest.mark.parametrize(
    "value", [float("nan"), [1.0] * MANY + [float("inf")] * 2, {"a": ["x" * 2 * LONG, float("nan")]}]
)
def test_a_number_that_is_none_is_refused_where_asked(value: Any):
    with pytest.raises(ValueError, match="JSON compliant"):
        encode_json(value, allow_nan=False)
    assert encode_json(value) == json.dumps(value, separators=(",", ":"))
