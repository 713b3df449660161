"""Large values are spelt as json.dumps spells them, and other threads get their turn meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import spelling
from proxy.spelling import LONG, MANY, spell

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
    assert spell(value, ensure_ascii=ensure_ascii) == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=6),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_any_value_is_spelt_alike_wherever_the_bounds_are(value: Any, ensure_ascii: bool):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spelling, "LONG", 1)
        patch.setattr(spelling, "MANY", 2)
        expected = json.dumps(value, ensure_ascii=ensure_ascii, separators=(",", ":"))
        assert spell(value, ensure_ascii=ensure_ascii) == expected


@pytest.mark.parametrize(
    "value", [float("nan"), [1.0] * MANY + [float("inf")] * 2, {"a": ["x" * 2 * LONG, float("nan")]}]
)
def test_a_number_that_is_none_is_refused_where_asked(value: Any):
    with pytest.raises(ValueError, match="JSON compliant"):
        spell(value, allow_nan=False)
    assert spell(value) == json.dumps(value, separators=(",", ":"))
