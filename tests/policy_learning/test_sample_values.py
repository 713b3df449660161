import pytest

from proxy.policy.arg_path import parse_arg
from proxy.policy.eval_context import EvalContext
from proxy.policy_learning.sample_values import ABSENT, place_value, sample_values


@pytest.mark.parametrize("arg", ["x", "a.b", "a[*].b", "a[1]", "**.url", "*", "['odd key']", "a.**"])
def test_a_value_is_put_where_its_path_finds_it(arg):
    arguments = {}
    place_value(arguments, arg, "value")
    assert "value" in parse_arg(arg).select(EvalContext(arguments)).exact


def test_what_is_absent_is_not_put_anywhere():
    arguments = {}
    place_value(arguments, "x", ABSENT)
    assert arguments == {}


def test_values_are_beside_what_operators_compare_with():
    found = sample_values([("x", "gte", "5"), ("x", "path_under", '["/srv"]'), ("x", "length", '{"lte": 3}')])
    assert {4, 5, 6, "5"} <= {value for value in found if isinstance(value, int | str)}
    assert "/srv/inside" in found
    assert "xxxx" in found
