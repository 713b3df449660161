"""Which calls are like one that was approved."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.twophase.hashing import NotExactError
from proxy.twophase.standing import argument_parts, like_key
from proxy.twophase.tokens import SigningKey

KEY = SigningKey("k1", b"k" * 32)
PAID = {"amount": 100, "to": "bob", "urgent": False, "tags": ["x"], "more": {"a": 1}, "none": None}


def key_of(arguments: dict[str, Any] | None, *vary: str, key: SigningKey = KEY) -> str:
    return like_key(argument_parts(arguments, key), vary)


def test_equal_arguments_are_alike_however_they_are_written() -> None:
    assert key_of(PAID) == key_of(dict(reversed(PAID.items())) | {"amount": 100.0})
    assert key_of(None) == key_of({})


@pytest.mark.parametrize(
    "change", [{"amount": 101}, {"to": "eve"}, {"urgent": True}, {"extra": 1}, {"urgent": 0}, {"none": ""}]
)
def test_any_other_value_is_another_call(change: dict[str, Any]) -> None:
    assert key_of(PAID) != key_of(PAID | change)


@pytest.mark.parametrize("name", PAID)
def test_a_missing_argument_is_another_call_also_where_it_may_vary(name: str) -> None:
    assert key_of(PAID, name) != key_of({other: value for other, value in PAID.items() if other != name}, name)


def test_what_may_vary_may_have_another_value_of_the_same_type() -> None:
    assert key_of(PAID, "amount") == key_of(PAID | {"amount": 7.5}, "amount")
    assert key_of(PAID, "amount") != key_of(PAID | {"amount": 7.5, "to": "eve"}, "amount")
    kinds: list[Any] = [None, True, 1, "1", [1], {"a": 1}]
    assert len({key_of({"x": value}, "x") for value in kinds}) == len(kinds)


def test_a_value_cannot_pass_for_a_type() -> None:
    assert key_of({"x": "string"}) != key_of({"x": "y"}, "x")


def test_a_hash_is_of_its_key_and_of_its_argument() -> None:
    parts = argument_parts({"a": "x", "b": "x"}, KEY)
    assert parts["a"] != parts["b"]
    assert parts != argument_parts({"a": "x", "b": "x"}, SigningKey("k2", b"j" * 32))


def test_what_has_no_exact_form_has_no_parts() -> None:
    with pytest.raises(NotExactError):
        argument_parts({"x": 1 << 60}, KEY)
