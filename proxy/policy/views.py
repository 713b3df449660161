"""Views of selected values, by the family of operators that judges them. Pure, no I/O.

A family turns each value into the view its operators compare; views are made
once per call and `arg`, however many rules ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from proxy.policy.arg_select import (
    AMBIGUOUS,
    NOTHING,
    WRONG_TYPE,
    AmbiguousError,
    Trouble,
    inner_strings,
    looks_like_json,
)
from proxy.policy.text import NOT_UTF8, fold, has_one_reading, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxy.policy.arg_select import ArgPath, EvalContext, Selection


class Views(NamedTuple):
    """The views of everything one `arg` found.

    `items` count for may and must, `extra` (from JSON inside a string) for may
    alone. `sure` is False where the server may see no value at all. `trouble`
    tells of a value that has no view.
    """

    items: tuple[Any, ...]
    extra: tuple[Any, ...]
    sure: bool
    trouble: Trouble | None


_NO_VIEWS: Final = Views((), (), False, None)

type Make = Callable[[Any], Any]
type Gather = Callable[[EvalContext], Views]


class WrongTypeError(Exception):
    """A value of a type the operator does not speak of."""

    def __init__(self, wanted: str, value: Any) -> None:
        super().__init__(f"{kind_of(value)} where the rule expects {wanted}")


def kind_of(value: Any) -> str:
    """Return the JSON name of a value's type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            raise TypeError(f"not a JSON value: {type(value).__name__}")


def gather(arg: ArgPath, family: str, make: Make) -> Gather:
    """Return the function that makes, once per call, the views of `arg` in `family`."""
    key = f"{family}:{arg.text}"

    def views(context: EvalContext) -> Views:
        found: Views | None = context.memo.get(key)
        if found is None:
            found = context.memo[key] = _make_views(arg, make, context)
        return found

    return views


def _make_views(arg: ArgPath, make: Make, context: EvalContext) -> Views:
    selection = arg.select(context)
    if selection is NOTHING:
        return _NO_VIEWS
    if is_simple(selection):
        try:
            return Views((make(selection.exact[0]),), (), True, None)
        except (WrongTypeError, AmbiguousError):
            pass
    items: list[Any] = []
    extra: list[Any] = []
    trouble = selection.trouble
    for value in _distinct((*selection.exact, *selection.loose)):
        try:
            items.append(make(value))
            if isinstance(value, str):
                extra.extend(map(make, _inner(value, swept=arg.sweeps)))
        except WrongTypeError as error:
            if not arg.sweeps:
                trouble = Trouble(WRONG_TYPE, str(error))
        except AmbiguousError as error:
            trouble = Trouble(AMBIGUOUS, str(error))
    sure = any(value is not None for value in selection.exact)
    return Views(tuple(items), tuple(extra), sure, trouble)


def is_simple(selection: Selection) -> bool:
    """Return whether all that was found is one string that every server reads alike and that holds no JSON."""
    exact, loose, trouble = selection
    if len(exact) != 1 or loose or trouble is not None:
        return False
    return _is_simple_text(exact[0])


def single_text(arg: ArgPath, context: EvalContext) -> str | None:
    """Return an argument of which `is_simple` holds, the short way; None where it is not that simple."""
    value = arg.single_value(context)
    return value if _is_simple_text(value) else None


def _is_simple_text(value: Any) -> TypeGuard[str]:
    return type(value) is str and has_one_reading(value) and not looks_like_json(value)


def _distinct(values: tuple[Any, ...]) -> Iterator[Any]:
    """Return the values that are not null, and a string only once."""
    seen: set[str] = set()
    for value in values:
        if isinstance(value, str):
            if value in seen:
                continue
            seen.add(value)
        if value is not None:
            yield value


def _inner(value: str, *, swept: bool) -> Iterator[str]:
    """Return the strings of the JSON inside a string; a sweep has found those of the string as it stands."""
    readings = read_text(value).readings
    for text in readings[1:] if swept else readings:
        yield from inner_strings(text)


class TextView(NamedTuple):
    """A string: its readings, and these without case."""

    readings: tuple[str, ...]
    folded: tuple[str, ...]


def view_text(value: Any) -> TextView:
    """View a string as text."""
    if not isinstance(value, str):
        raise WrongTypeError("a string", value)
    if has_one_reading(value):
        whole = value.lower()
        stripped = whole.strip()
        return TextView((value,), (whole,) if stripped == whole else (whole, stripped))
    text = read_text(value)
    if text.problem and text.problem != NOT_UTF8:
        raise AmbiguousError(text.problem)
    folded = dict.fromkeys(fold(reading) for reading in text.readings)
    folded |= dict.fromkeys(reading.strip() for reading in tuple(folded))
    return TextView(text.readings, tuple(folded))


class ScalarView(NamedTuple):
    """A scalar: itself, and the texts by which a lax server would know it."""

    value: Any
    names: frozenset[str]


def view_scalar(value: Any) -> ScalarView:
    """View a scalar for comparison."""
    if isinstance(value, dict | list):
        raise WrongTypeError("one value", value)
    if isinstance(value, str):
        names = set(view_text(value).folded)
        number = read_number(value)
        if number is not None:
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
    """View a string as text, an array as its scalars."""
    if isinstance(value, list):
        return tuple(view_scalar(v) for v in value if not isinstance(v, dict | list))
    return view_text(value)


class NumberView(NamedTuple):
    """A number, and whether it came as one."""

    value: float
    plain: bool


def view_number(value: Any) -> NumberView:
    """View a number; a numeric string is one that a lax server would take."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return NumberView(value, True)
    if isinstance(value, str):
        number = read_number(value)
        if number is not None:
            return NumberView(number, False)
    raise WrongTypeError("a number", value)


def read_number(text: str) -> float | None:
    """Read a numeric string as a server that coerces would, or give None."""
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


_STARTS = frozenset("0123456789+-.iInN")
"""What a number may start with: `inf` and `nan` are read as some, too."""


def view_length(value: Any) -> tuple[int, ...]:
    """View a value as its lengths: of each reading for a string, of itself otherwise."""
    if isinstance(value, str):
        return tuple({len(reading) for reading in read_text(value).readings})
    if isinstance(value, dict | list):
        return (len(value),)
    raise WrongTypeError("a string, array or object", value)
