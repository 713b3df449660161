"""What differs between two calls."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.console.argument_diff import diff


def changes(before: Any, after: Any) -> list[tuple[str, str, str, str]]:
    return [(line.path, line.before, line.after, line.change) for line in diff(before, after)]


def test_each_value_is_compared_by_its_place() -> None:
    assert changes({"to": "bob", "amount": 100, "memo": "x"}, {"amount": 250, "to": "bob", "urgent": True}) == [
        ("amount", "100", "250", "changed"),
        ("to", '"bob"', '"bob"', "same"),
        ("urgent", "", "true", "added"),
        ("memo", '"x"', "", "removed"),
    ]


def test_deep_values_have_a_path_and_a_dot_in_a_name_is_no_step() -> None:
    assert [line.path for line in diff(None, {"a": {"b": [1, {"c": 2}]}, "x.y": 3})] == [
        "a.b[0]",
        "a.b[1].c",
        '"x.y"',
        "(all)",
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [({"a": 1}, {"a": True}), ({"a": 1}, {"a": "1"}), ({"a": {}}, {"a": []}), ({"a": None}, {"a": ""}), ([], {})],
)
def test_values_of_another_type_are_not_the_same(before: Any, after: Any) -> None:
    assert {line.change for line in diff(before, after)} == {"changed"}


def test_equal_calls_have_no_change() -> None:
    value = {"a": [1, {"b": "é"}], "c": {}}
    assert {line.change for line in diff(value, value)} == {"same"}
