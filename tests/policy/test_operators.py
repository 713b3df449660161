"""What operators answer: no, may, or yes."""

import pytest
from pydantic import TypeAdapter

from proxy.policy.conditions import When
from proxy.policy.eval_context import EvalContext
from proxy.policy.operators import OPERATORS, compile_when, text_variants
from proxy.policy.views import MAY, NO, YES

WHEN = TypeAdapter(When)


def judge(when, arguments, guess=1):
    context = EvalContext(arguments)
    context.guess = guess
    return compile_when(WHEN.validate_python(when))(context)


@pytest.mark.parametrize(
    ("operator", "yes", "may", "no"),
    [
        ({"equals": "prod"}, ["prod"], ["PROD", " prod ", "pr%6fd", '["prod"]'], ["production", 5]),
        ({"equals": 5}, [5, 5.0], ["5", "5e0"], [6, True]),
        ({"equals": None}, [None], [], ["x", 0]),
        ({"in": ["a", 3, None]}, ["a", 3, None], ["A", "3"], ["b"]),
        ({"only_keys": ["a", "b"]}, [{}, {"a": 1}, {"a": 1, "b": 2}], [{"A": 1}, {"a": 1, "A": 1}], [{"c": 1}]),
        ({"not_equals": "prod"}, ["dev", 5], ["PROD", None], ["prod"]),
        ({"starts_with": ["sk-", "pk-"]}, ["sk-1", "pk-1"], ["SK-1", " sk-1", "sk%2d1"], ["ask-1"]),
        ({"ends_with": ".exe"}, ["a.exe"], ["A.EXE", "a.exe ", "a%2eexe"], ["a.exe.txt"]),
        ({"contains": "drop"}, ["a drop b", ["drop"]], ["DROP", ["Drop"]], ["dr op", ["a"]]),
        ({"matches": "^a+$"}, ["aa"], ["%61"], ["b", "A"]),
        ({"gt": 5}, [6, 5.1], ["6", "1e3"], [5, "5"]),
        ({"lte": 5}, [5, -1], ["5"], [6]),
        ({"exists": True}, [1, None, "", []], [], []),
        ({"exists": False}, [], [], [1, None]),
        ({"type": "integer"}, [5, 5.0, 10**400], [], [5.5, "5", True]),
        ({"type": ["array", "null"]}, [[1], None], [], [{}, 0]),
        ({"length": 3}, ["abc", [1, 2, 3], {"a": 1, "b": 2, "c": 3}], ["%61bc"], ["ab", []]),
        ({"length": {"gt": 1, "lt": 3}}, ["ab"], [], ["a", "abc"]),
    ],
)
def test_an_operator_is_sure_of_a_plain_value_and_unsure_of_one_that_a_lax_server_would_take(operator, yes, may, no):
    for bits, values in ((YES, yes), (MAY, may), (NO, no)):
        assert {repr(v): judge({"arg": "v", **operator}, {"v": v}) for v in values} == {repr(v): bits for v in values}


@pytest.mark.parametrize("operator", sorted(OPERATORS.keys() - {"not_equals", "exists"}))
def test_a_missing_value_satisfies_no_operator(operator):
    operands = {"in": [1], "gt": 1, "gte": 1, "lt": 1, "lte": 1, "length": 1, "type": "null", "cidr": "10.0.0.0/8"}
    operands |= {"host_data": True, "only_keys": ["x"]}
    operands["sql"] = {"dialect": "postgres", "statements": ["select"]}
    operand = operands.get(operator, "public" if operator == "ip_class" else "x")
    assert judge({"arg": "v", operator: operand}, {}) == NO


def test_a_missing_value_is_not_equal_for_a_deny_and_never_for_an_allow():
    assert judge({"arg": "v", "not_equals": 1}, {}) == MAY
    assert judge({"arg": "v", "exists": False}, {}) == YES


HOLDS, FAILS, MAYBE = ({"arg": name, "equals": "x"} for name in ("yes", "no", "may"))
VALUES = {"yes": "x", "no": "y", "may": "X"}


@pytest.mark.parametrize(
    ("when", "bits"),
    [
        ({"all": [HOLDS, HOLDS]}, YES),
        ({"all": [HOLDS, MAYBE]}, MAY),
        ({"all": [MAYBE, FAILS]}, NO),
        ({"any": [FAILS, MAYBE]}, MAY),
        ({"any": [MAYBE, HOLDS]}, YES),
        ({"any": [FAILS, FAILS]}, NO),
        ({"not": HOLDS}, NO),
        ({"not": FAILS}, YES),
        ({"not": MAYBE}, MAY),
        ({"not": {"not": HOLDS}}, YES),
    ],
)
def test_conditions_combine_by_what_may_and_what_must_hold(when, bits):
    assert judge(when, VALUES) == bits


@pytest.mark.parametrize("guess", [1, 2])
def test_a_guess_about_what_cannot_be_judged_survives_negation(guess):
    wrong = {"arg": "v", "gt": 1}
    assert judge(wrong, {"v": "lots"}, guess) == judge({"not": wrong}, {"v": "lots"}, guess) == guess


def test_an_operand_is_read_as_values_are():
    assert text_variants(["A%20b"]) == (("A%20b", "A b"), ("a%20b", "a b"))
