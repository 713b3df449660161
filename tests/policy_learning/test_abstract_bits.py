import itertools

from pydantic import TypeAdapter

from proxy.policy.conditions import When
from proxy.policy_learning.abstract_bits import ALL_ANSWERS, atoms_in, possible

TREE = TypeAdapter(When).validate_python(
    {
        "any": [
            {"all": [{"arg": "a", "gt": 1, "lt": 5}, {"not": {"arg": "b", "equals": "x"}}]},
            {"arg": "c", "exists": True},
        ]
    }
)


def test_each_operator_is_an_atom():
    assert [atom[:2] for atom in atoms_in(TREE)] == [("a", "gt"), ("a", "lt"), ("b", "equals"), ("c", "exists")]


def test_with_all_answers_known_there_is_one_and_with_less_never_fewer():
    atoms = list(atoms_in(TREE))
    for bits in itertools.product(ALL_ANSWERS, repeat=len(atoms)):
        known = dict(zip(atoms, bits, strict=True))
        whole = possible(TREE, known)
        assert len(whole) == 1
        for atom in atoms:
            assert whole <= possible(TREE, {one: value for one, value in known.items() if one != atom})
