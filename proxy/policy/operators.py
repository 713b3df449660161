"""The operators of conditions, compiled to tests. Pure, no I/O.

`views` says what a test's two bits mean. Negation turns "may" into "must not" and back.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from proxy.policy import (
    command_operator,
    command_path_operator,
    host_operators,
    path_operator,
    sql_operator,
    views,
)
from proxy.policy.arg_path import EVERYTHING, ArgPath, parse_arg
from proxy.policy.conditions import After, All, Any_, Bounds, Condition, Not, When, as_tuple
from proxy.policy.eval_context import fold_key
from proxy.policy.plain_arguments import read_plainly
from proxy.policy.regex import compile_search
from proxy.policy.text import fold, read_text
from proxy.policy.views import MAY, NO, YES, Judge, NumberView, ScalarView, Test, TextView, gather, judge_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.policy.eval_context import EvalContext


type Build = Callable[[ArgPath, Any], Test]

# Indexed by bits. "May" stays "may": where some views fit, others do not. 2 stays 2, because a guess
# about a value that cannot be judged (see `CompiledRule.evaluate`) is as good as its negation.
_NEGATED: Final = (3, 1, 2, 0)
_COMPARISONS: Final = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}


def compile_when(when: When) -> Test:
    """Compile a condition tree to one test."""
    match when:
        case All(all=parts):
            return _all(tuple(compile_when(part) for part in parts))
        case Any_(any=parts):
            return _any(tuple(compile_when(part) for part in parts))
        case Not(not_=part):
            return _not(compile_when(part))
        case After():
            return _after(when)
        case Condition():
            arg = parse_arg(when.arg)
            return _all(tuple(OPERATORS[name](arg, operand) for name, operand in when.operators().items()))


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


def _after(when: After) -> Test:
    labels, within = when.after.remembered, when.within

    def test(context: EvalContext) -> int:
        if context.history is None:
            # Raised, so that the rule refuses: what came before has to be known.
            raise LookupError("what the agent did before is not known")
        return NO if context.history.latest(labels, within) is None else YES

    return test


def _equals(arg: ArgPath, operand: Any) -> Test:
    return _type(arg, "null") if operand is None else _in(arg, [operand])


def _not_equals(arg: ArgPath, operand: Any) -> Test:
    # Like `not: {equals: …}`, but a missing value never satisfies an allow.
    equal = _equals(arg, operand)
    here = _type(arg, ["string", "number", "boolean", "array", "object"])
    return lambda context: _NEGATED[equal(context)] & (here(context) | MAY)


def _in(arg: ArgPath, operand: list[Any]) -> Test:
    wanted = [views.view_scalar(value) for value in operand]
    names = frozenset(name for view in wanted for name in view.names)
    judge = _judge_scalar(names, [(type(view.value), view.value) for view in wanted])
    test = judge_each(gather(arg, "scalar", views.view_scalar), judge)
    return _any((test, _type(arg, "null"))) if None in operand else test


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
    """Return the readings of an operand's texts, and the same folded."""
    readings = tuple(dict.fromkeys(r for word in as_tuple(operand) for r in read_text(word).readings))
    return readings, tuple(dict.fromkeys(fold(reading) for reading in readings))


def _has_affix(fits: Callable[[str, tuple[str, ...]], bool]) -> Build:
    def build(arg: ArgPath, operand: Any) -> Test:
        exact, folded = text_variants(operand)

        def judge(view: TextView) -> int:
            if not any(fits(text, folded) for text in view.folded):
                return NO
            # An allow must fit as written: a server that compares case would not take SK- for sk-.
            return YES if all(fits(text, exact) for text in view.readings) else MAY

        return judge_each(gather(arg, "text", views.view_text), judge)

    return build


def _contains(arg: ArgPath, operand: Any) -> Test:
    exact, folded = text_variants(operand)
    elements = _judge_scalar(frozenset(folded), [(str, text) for text in exact])

    def judge(view: TextView | tuple[ScalarView, ...]) -> int:
        if not isinstance(view, TextView):
            return max((elements(element) for element in view), default=NO)
        if not any(word in text for text in view.folded for word in folded):
            return NO
        return YES if all(any(word in text for word in exact) for text in view.readings) else MAY

    return judge_each(gather(arg, "contents", views.view_contents), judge)


def _matches(arg: ArgPath, operand: Any) -> Test:
    searches = [compile_search(pattern) for pattern in as_tuple(operand)]

    def judge(view: TextView) -> int:
        return _summarise([any(search(text) for search in searches) for text in view.readings])

    test = judge_each(gather(arg, "text", views.view_text), judge)
    if arg.steps != EVERYTHING:
        return test

    def test_everything(context: EvalContext) -> int:
        plain = read_plainly(context)
        if plain is None or any(search(text) for text in plain.texts for search in searches):
            return test(context)
        return NO

    return test_everything


def _summarise(hits: list[bool]) -> int:
    return YES if all(hits) else MAY if any(hits) else NO


def _compare(compare: Callable[[Any, Any], bool]) -> Build:
    def build(arg: ArgPath, operand: float) -> Test:
        def judge(view: NumberView) -> int:
            if not compare(view.value, operand):
                return NO
            return YES if view.plain else MAY

        return judge_each(gather(arg, "number", views.view_number), judge)

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
        kind = views.kind_of(value)
        if kind != "number" or "integer" not in wanted:
            return kind in wanted
        # A whole number may be larger than any float.
        return kind in wanted or isinstance(value, int) or float(value).is_integer()

    def test(context: EvalContext) -> int:
        found = arg.select(context)
        if found.trouble is not None:
            return context.give_up(found.trouble)
        hits = [fits(value) for value in (*found.exact, *found.loose)]
        if not any(hits):
            return NO
        return YES if found.exact and all(hits) else MAY

    return test


def _only_keys(arg: ArgPath, operand: list[str]) -> Test:
    names = frozenset(operand)
    folded = frozenset(map(fold_key, operand))

    def judge(keys: tuple[str, ...]) -> int:
        if names.issuperset(keys):
            return YES
        # `Path` may be read as `path`, so it may be one of these; an allow does not rely on that.
        return MAY if folded.issuperset(map(fold_key, keys)) else NO

    return judge_each(gather(arg, "keys", views.view_keys), judge)


def _length(arg: ArgPath, operand: int | Bounds) -> Test:
    bounds = Bounds(gte=operand, lte=operand) if isinstance(operand, int) else operand
    limits = ((compare, getattr(bounds, name)) for name, compare in _COMPARISONS.items())
    checks = [(compare, limit) for compare, limit in limits if limit is not None]

    def judge(lengths: tuple[int, ...]) -> int:
        return _summarise([all(compare(length, limit) for compare, limit in checks) for length in lengths])

    return judge_each(gather(arg, "length", views.view_length), judge)


OPERATORS: Final[dict[str, Build]] = {
    "equals": _equals,
    "not_equals": _not_equals,
    "in": _in,
    "starts_with": _has_affix(str.startswith),
    "ends_with": _has_affix(str.endswith),
    "contains": _contains,
    "matches": _matches,
    **{name: _compare(compare) for name, compare in _COMPARISONS.items()},
    "exists": _exists,
    "type": _type,
    "length": _length,
    "only_keys": _only_keys,
    "path_under": path_operator.path_under,
    "host_in": host_operators.host_in,
    "url_scheme": host_operators.url_scheme,
    "ip_class": host_operators.ip_class,
    "host_data": host_operators.host_data,
    "cidr": host_operators.cidr,
    "command": command_operator.command,
    "sql": sql_operator.sql,
    "command_path_under": command_path_operator.command_path_under,
    "command_host_in": command_path_operator.command_host_in,
}
