"""The operator `sql`: surely, maybe or not."""

import subprocess
import sys

import pytest

from proxy.policy.arg_path import parse_arg
from proxy.policy.conditions import Sql
from proxy.policy.eval_context import EvalContext
from proxy.policy.sql_operator import sql
from proxy.policy.views import MAY, NO, YES


def judge(value, **operand):
    test = sql(parse_arg("sql"), Sql.model_validate({"dialect": "postgres", **operand}))
    return test(EvalContext({"sql": value}))


@pytest.mark.parametrize(
    ("value", "operand", "bits"),
    [
        ("SELECT 1", {"statements": ["select"]}, YES),
        ("SELECT 1; DELETE FROM t", {"statements": ["select"]}, MAY),
        ("DELETE FROM t", {"statements": ["select"]}, NO),
        ("SELECT f()", {"statements": ["select"]}, MAY),
        ("SELECT f()", {"statements": ["select"], "functions": ["F"]}, YES),
        ("SELECT app.f()", {"statements": ["select"], "functions": ["app.*"]}, YES),
        ("SELECT * FROM a", {"tables": ["a"]}, YES),
        ("SELECT * FROM x.a", {"tables": ["a"]}, MAY),
        ("SELECT * FROM a", {"tables": ["x.a"]}, MAY),
        ("SELECT * FROM b", {"tables": ["a", "x.*"]}, MAY),
        ("SELECT * FROM y.b", {"tables": ["a", "x.*"]}, NO),
        ("SELECT 1", {"tables": ["a"]}, NO),
    ],
)
def test_sql_does_this_surely_maybe_or_not(value, operand, bits):
    assert judge(value, **operand) == bits


def test_what_cannot_be_parsed_is_undecided():
    context = EvalContext({"sql": "SELECT 'x"})
    operand = Sql.model_validate({"dialect": "postgres", "statements": ["select"]})
    assert sql(parse_arg("sql"), operand)(context) == context.guess
    assert context.take_trouble().reason == "ambiguous_value"


def test_a_value_that_is_no_text_is_of_the_wrong_type():
    context = EvalContext({"sql": 5})
    operand = Sql.model_validate({"dialect": "postgres", "statements": ["select"]})
    sql(parse_arg("sql"), operand)(context)
    assert context.take_trouble().reason == "wrong_type"


def test_an_operand_says_something():
    with pytest.raises(ValueError, match="statements or tables"):
        Sql.model_validate({"dialect": "postgres"})


def test_a_policy_without_sql_does_not_import_the_parser():
    code = "import sys, proxy.policy.load; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
