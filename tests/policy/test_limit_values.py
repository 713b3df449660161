"""Windows and amounts as a policy and a call have them."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.limits import DECIMALS
from proxy.policy.limit_values import AmountError, read_amount, show_amount, window_seconds


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1), ("90s", 90), ("20m", 1200), ("1h", 3600), ("31d", 2_678_400)])
def test_a_window_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert window_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0s", "h", "1", "1w", "-1h", "1.5h", "1h ", "32d", "1h30m", "99999999s", "\uff11h"]
)
def test_anything_else_is_no_window(text: str) -> None:
    with pytest.raises(ValueError, match="write a time like"):
        window_seconds(text)


@given(st.decimals(0, 10**20, places=9, allow_nan=False, allow_infinity=False))
def test_an_amount_as_text_is_exact(amount: Decimal) -> None:
    assert read_amount(f"{amount:f}") == int(Fraction(amount) * 10**DECIMALS)
    assert Decimal(show_amount(read_amount(f"{amount:f}"))) == amount


@given(st.floats(0, 1e20, allow_nan=False))
def test_a_float_is_the_decimal_that_it_came_as(number: float) -> None:
    try:
        units = read_amount(number)
    except AmountError as error:
        assert "decimals" in str(error)  # noqa: PT017  the one reason that an honest float may be refused for
        return
    assert Decimal(units).scaleb(-DECIMALS) == Decimal(repr(number))


REFUSED = [
    None,
    True,
    [],
    {},
    -1,
    -0.5,
    float("nan"),
    float("inf"),
    10**30,
    1e300,
    "",
    "x",
    "1e5",
    "+1",
    "-1",
    "1,0",
    "٣",
]


@pytest.mark.parametrize("value", REFUSED, ids=repr)
def test_anything_else_is_no_amount(value: Any) -> None:
    with pytest.raises(AmountError):
        read_amount(value)


def test_a_number_of_a_million_digits_is_refused_at_once() -> None:
    with pytest.raises(AmountError, match="digits"):
        read_amount(10**1_000_000)
    with pytest.raises(AmountError):
        read_amount("9" * 1_000_000)
