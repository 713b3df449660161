"""Views of the selected values, one kind for each family of operators. Pure, no I/O.

A family turns each value into the view that its operators compare. Views are made
once per call and `arg`, however many rules need them.

An operator answers with two bits: bit 0, the condition may hold (some view fits); bit 1, it
must hold (every view fits). A deny acts on "may": whatever a server makes of the value, the
forbidden meaning is caught. An allow acts on "must": no server can read something else into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from proxy.policy.arg_path import ArgPath, inner_strings
from proxy.policy.eval_context import AMBIGUOUS, NOTHING, WRONG_TYPE, EvalContext, Trouble
from proxy.policy.text import NOT_UTF8, AmbiguousError, fold, has_one_reading, looks_like_json, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


NO: Final = 0
MAY: Final = 1
YES: Final = 3


class Views(NamedTuple):
    """The views of everything that one `arg` found.

    `items` count for may and must, `extra` (from JSON inside a string) for may
    alone. `sure` is False where the server may see no value at all. `trouble`
    is set where a value has no view.
    """

    items: tuple[Any, ...]
    extra: tuple[Any, ...]
    sure: bool
    trouble: Trouble | None


_NO_VIEWS: Final = Views((), (), False, None)

type Make = Callable[[Any], Any]
type Gather = Callable[[EvalContext], Views]
type Judge = Callable[[Any], int]
type Test = Callable[[EvalContext], int]


class WrongTypeError(Exception):
    """A value of a type that the operator does not compare."""

    def __init__(self, wanted: str, value: Any) -> None:
        super().__init__(f"{kind_of(value)} where the rule expects {wanted}")


# bool before int: True is an int to Python and a boolean to JSON.
_KINDS: Final = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}


def kind_of(value: Any) -> str:
    """Return the JSON name of a value's type; raise TypeError for what is no JSON value."""
    if value is None:
        return "null"
    for kind, name in _KINDS.items():
        if isinstance(value, kind):
            return name
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def gather(arg: ArgPath, family: str, make: Make) -> Gather:
    """Return the function that makes, once per call, the views of `arg` in `family`."""
    key = f"{family}:{arg.text}"

    def views(context: EvalContext) -> Views:
        found: Views | None = context.memo.get(key)
        if found is None:
            found = context.memo[key] = make_views(arg, make, context)
        return found

    return views


def judge_each(views_of: Gather, judge: Judge, *, with_problems: bool = False) -> Test:
    """Return the test that judges every view: may if any fits, must if all do.

    Where `with_problems` is set, a view's `problem` makes the condition undecidable.
    """

    def test(context: EvalContext) -> int:
        items, extra, must, trouble = views_of(context)
        may = False
        for view in items:
            bits = judge(view)
            may = may or bits != NO
            must = must and bits == YES
            if with_problems and view.problem:
                trouble = Trouble(AMBIGUOUS, view.problem)
        may = may or any(judge(view) for view in extra)
        if trouble is not None:
            return int(may) | context.give_up(trouble)
        if not may:
            return NO
        return YES if must else MAY

    return test


def make_views(arg: ArgPath, make: Make, context: EvalContext) -> Views:
    """Return the views of all that `arg` selects, made by `make`."""
    selection = arg.select(context)
    if selection is NOTHING:
        return _NO_VIEWS
    exact, loose, trouble = selection
    if len(exact) == 1 and not loose and trouble is None and _is_simple_text(exact[0]):
        # Most calls end here: one plain string, so there is no JSON in it to look for.
        try:
            return Views((make(exact[0]),), (), True, None)
        except (WrongTypeError, AmbiguousError):
            pass
    items: list[Any] = []
    extra: list[Any] = []
    for value in _distinct((*exact, *loose)):
        try:
            items.append(make(value))
            if isinstance(value, str):
                # A path that ends in `**` has already found the strings of the JSON in the raw string.
                readings = read_text(value).readings[1 if arg.sweeps else 0 :]
                extra.extend(make(inner) for reading in readings for inner in inner_strings(reading))
        except WrongTypeError as error:
            if not arg.sweeps:
                trouble = Trouble(WRONG_TYPE, str(error))
        except AmbiguousError as error:
            trouble = Trouble(AMBIGUOUS, str(error))
    sure = any(value is not None for value in exact)
    return Views(tuple(items), tuple(extra), sure, trouble)


def single_text(arg: ArgPath, context: EvalContext) -> str | None:
    """Return the argument where it is the only one of its name, with one reading and no JSON in it; else None."""
    value = arg.single_value(context)
    return value if _is_simple_text(value) else None


def _is_simple_text(value: Any) -> TypeGuard[str]:
    return type(value) is str and has_one_reading(value) and not looks_like_json(value)


def _distinct(values: tuple[Any, ...]) -> Iterator[Any]:
    """Return the values that are not null, each string once."""
    seen: set[str] = set()
    for value in values:
        if isinstance(value, str):
            if value in seen:
                continue
            seen.add(value)
        if value is not None:
            yield value


class TextView(NamedTuple):
    """A string: its readings, and the readings folded."""

    readings: tuple[str, ...]
    folded: tuple[str, ...]


def view_text(value: Any) -> TextView:
    if not isinstance(value, str):
        raise WrongTypeError("a string", value)
    if has_one_reading(value):
        whole = value.lower()
        stripped = whole.strip()
        return TextView((value,), (whole,) if stripped == whole else (whole, stripped))
    text = read_text(value)
    # Bytes that are not UTF-8 are common in plain text ("100%ff"); only paths and hosts refuse them.
    if text.problem and text.problem != NOT_UTF8:
        raise AmbiguousError(text.problem)
    folded = dict.fromkeys(fold(reading) for reading in text.readings)
    folded |= dict.fromkeys(reading.strip() for reading in tuple(folded))
    return TextView(text.readings, tuple(folded))


class ScalarView(NamedTuple):
    """A scalar: itself, and the texts that a lax server would take for it ("5.0" for 5)."""

    value: Any
    names: frozenset[str]


def view_scalar(value: Any) -> ScalarView:
    if isinstance(value, dict | list):
        raise WrongTypeError("one value", value)
    if isinstance(value, str):
        names = set(view_text(value).folded)
        if (number := read_number(value)) is not None:
            names.add(_name(number))
        return ScalarView(value, frozenset(names))
    return ScalarView(value, frozenset({_name(value)}))


def _name(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def view_contents(value: Any) -> TextView | tuple[ScalarView, ...]:
    if isinstance(value, list):
        return tuple(view_scalar(v) for v in value if not isinstance(v, dict | list))
    return view_text(value)


class NumberView(NamedTuple):
    """A number, and whether it came as one rather than as a string."""

    value: float
    plain: bool


def view_number(value: Any) -> NumberView:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return NumberView(value, True)
    # A lax server takes "5000" for 5000, so a deny of `gt: 1000` must see it.
    if isinstance(value, str) and (number := read_number(value)) is not None:
        return NumberView(number, False)
    raise WrongTypeError("a number", value)


def read_number(text: str) -> float | None:
    """Return a numeric string as the number that a coercing server would take it for, or None."""
    if len(text) > 400 or (text.isascii() and text.strip()[:1] not in _STARTS):
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return None if number != number else number  # noqa: PLR0124 - the test for NaN


# What a number may start with; Python reads `inf` and `nan` as numbers too.
_STARTS = frozenset("0123456789+-.iInN")


def view_length(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        return tuple({len(reading) for reading in read_text(value).readings})
    if isinstance(value, dict | list):
        return (len(value),)
    raise WrongTypeError("a string, array or object", value)


def view_keys(value: Any) -> tuple[str, ...]:
    if not isinstance(value, dict):
        raise WrongTypeError("an object", value)
    return tuple(value)
