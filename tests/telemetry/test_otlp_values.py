from __future__ import annotations

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from proxy.telemetry.otlp_values import MAX_ITEMS, MAX_TEXT, any_value, attributes, clean, nanoseconds, texts
from tests.support.telemetry_events import HOSTILE


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (True, "bool_value"),
        (7, "int_value"),
        (-(1 << 63), "int_value"),
        (1 << 63, "string_value"),
        (1.5, "double_value"),
        ("a", "string_value"),
        (["a"], "array_value"),
        ({"a": 1}, "string_value"),
    ],
)
def test_a_value_has_its_type(value: object, field: str) -> None:
    assert any_value(value).WhichOneof("value") == field


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_any_text_can_be_sent_and_is_bounded(text: str) -> None:
    again = AnyValue.FromString(any_value(text).SerializeToString())
    assert len(again.string_value) <= MAX_TEXT
    assert again.string_value == clean(text)


def test_lists_are_bounded_and_nothing_is_left_out() -> None:
    assert len(any_value(["a"] * 1000).array_value.values) == MAX_ITEMS
    assert [one.key for one in attributes({"a": None, "b": (), "c": False, "d": ""})] == ["c", "d"]
    assert texts(["a", 1, None]) == ("a",)
    assert texts("abc") == ()


def test_times_are_whole_microseconds_and_never_before_the_epoch() -> None:
    assert nanoseconds(1_763_000_000.25) == 1_763_000_000_250_000_000
    assert nanoseconds(-1.0) == 0
