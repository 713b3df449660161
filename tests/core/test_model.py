"""Values that the type checker keeps from changing."""

from __future__ import annotations

from dataclasses import field, replace

import pytest

from proxy.core.model import frozen


@frozen()
class Point:
    x: int
    names: dict[str, int] = field(default_factory=dict[str, int], hash=False)


@frozen(kw_only=True)
class Named:
    x: int = 0


def test_a_value_is_compared_hashed_and_replaced_by_its_fields() -> None:
    assert Point(1) == Point(1) != Point(2)
    assert hash(Point(1)) == hash(Point(1))
    assert replace(Point(1, {"a": 1}), x=2) == Point(2, {"a": 1})
    assert Point(1).names is not Point(1).names


def test_it_has_its_fields_and_no_others() -> None:
    assert not hasattr(Point(1), "__dict__")
    with pytest.raises(TypeError):
        Named(1)  # type: ignore[misc]
    assert Named(x=1).x == 1


def test_the_type_checker_takes_it_for_frozen() -> None:
    assert frozen.__dataclass_transform__["frozen_default"] is True  # type: ignore[attr-defined]
