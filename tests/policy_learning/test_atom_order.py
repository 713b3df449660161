"""What is said to be impossible never happens: every pair of operators on every odd value."""

import itertools
import json

from pydantic import TypeAdapter

from proxy.policy.conditions import When
from proxy.policy.eval_context import EvalContext
from proxy.policy.operators import compile_when
from proxy.policy_learning.abstract_bits import atoms_in
from proxy.policy_learning.atom_order import excluded, implies
from tests.support.random_policies import CONDITIONS, VALUES

WHEN = TypeAdapter(When)


def atoms():
    found = {atom for one in CONDITIONS for atom in atoms_in(WHEN.validate_python({"arg": "x", **one}))}
    return sorted(found)


def test_no_value_gives_answers_that_are_said_to_exclude_each_other():
    tests = {a: compile_when(WHEN.validate_python({"arg": "x", a[1]: json.loads(a[2])})) for a in atoms()}
    worlds = [{} if value is ... else {"x": value} for value in VALUES]
    worlds += [{"x": one, "X": other} for one, other in itertools.product(VALUES[1:], repeat=2)]
    for arguments in worlds:
        bits = {atom: test(EvalContext(arguments)) for atom, test in tests.items()}
        wrong = [(a, b) for a, b in itertools.combinations(tests, 2) if excluded(a, b, (bits[a], bits[b]))]
        assert wrong == [], arguments


def test_roots_numbers_and_lists_imply_wider_ones():
    assert implies(("x", "path_under", '"/srv/a"'), ("x", "path_under", '["/srv"]'))
    assert not implies(("x", "path_under", '"/srv-a"'), ("x", "path_under", '"/srv"'))
    assert not implies(("x", "path_under", '["/srv", "!/srv/a"]'), ("x", "path_under", '"/srv/b"'))
    assert implies(("x", "gt", "5"), ("x", "gte", "5"))
    assert not implies(("x", "gte", "5"), ("x", "gt", "5"))
