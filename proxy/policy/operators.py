"""The operators: what a condition asks of its value. Pure, no I/O.

A test answers with two bits: bit 0, the condition may hold (some view of the
value fits); bit 1, it must hold (every view does). Denies act on `may`, allows
on `must`, and negation turns one into the other.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from proxy.policy import command_operator, host_operators, path_operator
from proxy.policy.arg_select import parse_arg
from proxy.policy.conditions import All, Any_, Bounds, Condition, Not, as_tuple
from proxy.policy.regex import compile_search
from proxy.policy.text import fold, read_text
from proxy.policy.views import (
    ScalarView,
    TextView,
    gather,
    kind_of,
    view_contents,
    view_length,
    view_number,
    view_scalar,
    view_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.policy.arg_select import ArgPath, EvalContext
    from proxy.policy.conditions import When
    from proxy.policy.views import Gather, NumberView, Views

type Test = Callable[[EvalContext], int]
type Judge = Callable[[Any], int]
type Build = Callable[[ArgPath, Any], Test]

NO: Final = 0
MAY: Final = 1
YES: Final = 3
_NEGATED: Final = (3, 1, 2, 0)


def compile_when(when: When) -> Test:
    """Compile a condition tree to one function."""
    match when:
        case All(all=parts):
            return _all(tuple(compile_when(part) for part in parts))
        case Any_(any=parts):
            return _any(tuple(compile_when(part) for part in parts))
        case Not(not_=part):
            return _not(compile_when(part))
        case Condition():
            return compile_condition(when)


def compile_condition(condition: Condition) -> Test:
    """Compile one `arg` with its operators."""
    arg = parse_arg(condition.arg)
    tests = tuple(OPERATORS[name](arg, operand) for name, operand in condition.operators().items())
    return _all(tests)


def _all(tests: tuple[Test, ...]) -> Test:
    if len(tests) == 1:
        return tests[0]

    def test(context: EvalContext) -> int:
        bits = YES
        for part in tests:
            bits &= part(context)
            if not bits:
                return NO
        return bits

    return test


def _any(tests: tuple[Test, ...]) -> Test:
    if len(tests) == 1:
        return tests[0]

    def test(context: EvalContext) -> int:
        bits = NO
        for part in tests:
            bits |= part(context)
            if bits == YES:
                return YES
        return bits

    return test


def _not(part: Test) -> Test:
    return lambda context: _NEGATED[part(context)]


def combine(views: Views, judge: Judge, context: EvalContext) -> int:
    """Judge every view: may if any fits, must if all do."""
    may = False
    must = views.sure
    for view in views.items:
        bits = judge(view)
        may = may or bits != NO
        must = must and bits == YES
    may = may or any(judge(view) for view in views.extra)
    if views.trouble is not None:
        return int(may) | context.give_up(views.trouble)
    if not may:
        return NO
    return YES if must else MAY


def _each(views: Gather, judge: Judge) -> Test:
    return lambda context: combine(views(context), judge, context)


def _equals(arg: ArgPath, operand: Any) -> Test:
    if operand is None:
        return _type(arg, "null")
    return _in(arg, [operand])


def _not_equals(arg: ArgPath, operand: Any) -> Test:
    """Like the negation of equals, but a missing value gives no allow."""
    equal = _equals(arg, operand)
    here = _type(arg, ["string", "number", "boolean", "array", "object"])
    return lambda context: _NEGATED[equal(context)] & (here(context) | MAY)


def _in(arg: ArgPath, operand: list[Any]) -> Test:
    wanted = [view_scalar(value) for value in operand]
    names = frozenset(name for view in wanted for name in view.names)
    exact = [(type(view.value), view.value) for view in wanted]
    judge = _judge_scalar(names, exact)
    test = _each(gather(arg, "scalar", view_scalar), judge)
    if None not in operand:
        return test
    return _any((test, _type(arg, "null")))


def _judge_scalar(names: frozenset[str], exact: list[tuple[type, Any]]) -> Judge:
    numbers = [value for kind, value in exact if kind in (int, float)]
    others = [(kind, value) for kind, value in exact if kind not in (int, float)]

    def judge(view: ScalarView) -> int:
        kind = type(view.value)
        if (kind in (int, float) and view.value in numbers) or (kind, view.value) in others:
            return YES
        return NO if names.isdisjoint(view.names) else MAY

    return judge


def text_variants(operand: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return an operand's texts as written and read, and the same folded."""
    readings = tuple(dict.fromkeys(r for word in as_tuple(operand) for r in read_text(word).readings))
    return readings, tuple(dict.fromkeys(fold(reading) for reading in readings))


def _starts_with(arg: ArgPath, operand: Any) -> Test:
    exact, folded = text_variants(operand)

    def judge(view: TextView) -> int:
        if not any(text.startswith(folded) for text in view.folded):
            return NO
        return YES if all(text.startswith(exact) for text in view.readings) else MAY

    return _each(gather(arg, "text", view_text), judge)


def _ends_with(arg: ArgPath, operand: Any) -> Test:
    exact, folded = text_variants(operand)

    def judge(view: TextView) -> int:
        if not any(text.endswith(folded) for text in view.folded):
            return NO
        return YES if all(text.endswith(exact) for text in view.readings) else MAY

    return _each(gather(arg, "text", view_text), judge)


def _contains(arg: ArgPath, operand: Any) -> Test:
    exact, folded = text_variants(operand)
    elements = _judge_scalar(frozenset(folded), [(str, text) for text in exact])

    def judge(view: TextView | tuple[ScalarView, ...]) -> int:
        if not isinstance(view, TextView):
            return max((elements(element) for element in view), default=NO)
        if not any(word in text for text in view.folded for word in folded):
            return NO
        return YES if all(any(word in text for word in exact) for text in view.readings) else MAY

    return _each(gather(arg, "contents", view_contents), judge)


def _matches(arg: ArgPath, operand: Any) -> Test:
    searches = [compile_search(pattern) for pattern in as_tuple(operand)]

    def found(text: str) -> bool:
        return any(search(text) for search in searches)

    def judge(view: TextView) -> int:
        hits = [found(text) for text in view.readings]
        if all(hits):
            return YES
        return MAY if any(hits) else NO

    return _each(gather(arg, "text", view_text), judge)


def _compare(compare: Callable[[Any, Any], bool]) -> Build:
    def build(arg: ArgPath, operand: float) -> Test:
        def judge(view: NumberView) -> int:
            if not compare(view.value, operand):
                return NO
            return YES if view.plain else MAY

        return _each(gather(arg, "number", view_number), judge)

    return build


def _exists(arg: ArgPath, operand: bool) -> Test:  # noqa: FBT001 - an operand like any other
    def here(context: EvalContext) -> int:
        found = arg.select(context)
        if found.trouble is not None:
            return context.give_up(found.trouble)
        if found.exact:
            return YES
        return MAY if found.loose else NO

    return here if operand else _not(here)


def _type(arg: ArgPath, operand: Any) -> Test:
    wanted = frozenset(as_tuple(operand))

    def fits(value: Any) -> bool:
        kind = kind_of(value)
        if kind in wanted:
            return True
        return kind == "number" and "integer" in wanted and float(value).is_integer()

    def test(context: EvalContext) -> int:
        found = arg.select(context)
        if found.trouble is not None:
            return context.give_up(found.trouble)
        hits = [fits(value) for value in (*found.exact, *found.loose)]
        if not any(hits):
            return NO
        return YES if found.exact and all(hits) else MAY

    return test


def _length(arg: ArgPath, operand: int | Bounds) -> Test:
    bounds = Bounds(gte=operand, lte=operand) if isinstance(operand, int) else operand
    checks = [
        (compare, limit)
        for compare, limit in (
            (operator.gt, bounds.gt),
            (operator.ge, bounds.gte),
            (operator.lt, bounds.lt),
            (operator.le, bounds.lte),
        )
        if limit is not None
    ]

    def judge(lengths: tuple[int, ...]) -> int:
        hits = [all(compare(length, limit) for compare, limit in checks) for length in lengths]
        if all(hits):
            return YES
        return MAY if any(hits) else NO

    return _each(gather(arg, "length", view_length), judge)


OPERATORS: Final[dict[str, Build]] = {
    "equals": _equals,
    "not_equals": _not_equals,
    "in": _in,
    "starts_with": _starts_with,
    "ends_with": _ends_with,
    "contains": _contains,
    "matches": _matches,
    "gt": _compare(operator.gt),
    "gte": _compare(operator.ge),
    "lt": _compare(operator.lt),
    "lte": _compare(operator.le),
    "exists": _exists,
    "type": _type,
    "length": _length,
    "path_under": path_operator.path_under,
    "host_in": host_operators.host_in,
    "url_scheme": host_operators.url_scheme,
    "ip_class": host_operators.ip_class,
    "cidr": host_operators.cidr,
    "command": command_operator.command,
}
