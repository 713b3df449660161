"""The fields of `limits:` that are more than a plain value: windows of time, amounts, and how they are parsed. Pure."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation, localcontext
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StrictFloat, StrictInt, StrictStr

from proxy.core.limits import DECIMALS, MAX_DIGITS
from proxy.policy.arg_path import parse_arg
from proxy.policy.conditions import NonEmptyStr, Strict

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,5})([smhd])")
MAX_SECONDS: Final = 31 * 86_400
# As digits with one point at most. A server may read `1e3`, `1_000`, `1,000` or `+5` in more than one way, or not at
# all, so these are no amounts when they come as text.
_PLAIN: Final = re.compile(r"[0-9]{1,60}(?:\.[0-9]{1,60})?")

_USUAL: Final = re.compile(rf"([0-9]{{1,{MAX_DIGITS}}})(?:\.([0-9]{{1,{DECIMALS}}}))?")
_UNIT: Final = 10**DECIMALS

type Per = Literal["agent", "server", "tool", "rule", "session", "all"]


class AmountError(ValueError):
    """A value that is no amount: the message says why."""


def window_seconds(text: str) -> float:
    """Return the seconds of a window such as 90s, 20m, 1h or 7d. Raises ValueError for anything else."""
    match = _WINDOW.fullmatch(text)
    if match is None or int(match[1]) * _UNITS[match[2]] > MAX_SECONDS:
        raise ValueError("write a time like 90s, 20m, 1h or 7d, of 31 days at most")
    return float(int(match[1]) * _UNITS[match[2]])


def _check_window(text: str) -> str:
    window_seconds(text)
    return text


def read_amount(value: Any) -> int:
    """Return an amount in whole units of 10^-18. Raises AmountError for what is none, is negative, or is too large.

    A float stands for the shortest decimal that is it: so it came in JSON, and so it is forwarded.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise AmountError("it is no number")
    usual = _read_usual(value)
    return usual if usual is not None else _read_odd(value)


def _read_usual(value: float | str) -> int | None:
    """Return an amount as nearly all are: so plain that it needs no arithmetic of decimals. None for any other."""
    if isinstance(value, int):
        return value * _UNIT if 0 <= value < _UNIT else None
    match = _USUAL.fullmatch(value if isinstance(value, str) else repr(value))
    return int(match[1]) * _UNIT + int((match[2] or "").ljust(DECIMALS, "0")) if match is not None else None


def _read_odd(value: float | str) -> int:
    if isinstance(value, str) and _PLAIN.fullmatch(value) is None:
        raise AmountError("it is text that is not a plain decimal number such as 12.50")
    # Bounded before anything is computed: an integer of a million digits takes long to write out.
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        raise AmountError(f"it has more than {MAX_DIGITS} digits")
    try:
        with localcontext(prec=MAX_DIGITS + 2 * DECIMALS + 60):
            amount = Decimal(repr(value) if isinstance(value, float) else value)
            if not amount.is_finite():
                raise AmountError("it is no finite number")
            units = amount.scaleb(DECIMALS)
    except InvalidOperation:
        raise AmountError("it is no number") from None
    if amount < 0:
        raise AmountError("it is negative")
    if amount >= 10**MAX_DIGITS:
        raise AmountError(f"it has more than {MAX_DIGITS} digits")
    if units != units.to_integral_value():
        raise AmountError(f"it has more than {DECIMALS} decimals")
    return int(units)


def show_amount(units: int) -> str:
    """Return an amount as people write it."""
    whole, rest = divmod(units, 10**DECIMALS)
    return f"{whole}.{rest:0{DECIMALS}}".rstrip("0").rstrip(".") if rest else str(whole)


def _check_amount(value: float | str) -> float | str:
    try:
        read_amount(value)
    except AmountError as error:
        raise ValueError(f"{error}; write it like 1000 or '99.50'") from None
    return value


def _check_arg(text: str) -> str:
    if text.startswith("@") or parse_arg(text).sweeps:
        raise ValueError("name the argument that holds the amount, like amount or items[*].price")
    return text


type Window = Annotated[StrictStr, AfterValidator(_check_window)]
type Amount = Annotated[StrictInt | StrictFloat | StrictStr, AfterValidator(_check_amount)]


class Sum(Strict):
    """An argument that holds an amount, and how much calls may add up to."""

    arg: Annotated[NonEmptyStr, AfterValidator(_check_arg)] = Field(
        description="The argument with the amount; where it names several, such as items[*].price, they add up."
    )
    max: Amount = Field(description="The most that the amounts may add up to, as an exact decimal.")
