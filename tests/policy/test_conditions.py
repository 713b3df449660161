"""Conditions as a policy file has them."""

import pytest
from pydantic import TypeAdapter, ValidationError

from proxy.policy.conditions import All, Any_, Condition, Not, When, as_tuple

WHEN = TypeAdapter(When)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ({"arg": "x", "equals": 1}, Condition),
        ({"all": [{"arg": "x", "exists": True}]}, All),
        ({"any": [{"arg": "x", "in": [1, None]}]}, Any_),
        ({"not": {"arg": "x", "length": {"gt": 3}}}, Not),
    ],
)
def test_a_condition_is_told_by_its_keys(written, kind):
    assert isinstance(WHEN.validate_python(written), kind)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"arg": "x"}, "needs an operator beside arg: one of equals, not_equals, in,"),
        ({"arg": "x", "equal": 1}, "Extra inputs"),
        ({"arg": "x..y", "equals": 1}, "one dot between them"),
        ({"arg": "x", "matches": "(?=y)"}, "RE2 has no look-around"),
        ({"arg": "x", "matches": []}, "at least 1 item"),
        ({"arg": "x", "contains": ""}, "at least 1 character"),
        ({"arg": "x", "gt": "5"}, "valid integer"),
        ({"arg": "x", "cidr": "10.0.0/8"}, "10.0.0.0/8 or fd00::/8"),
        ({"arg": "x", "path_under": "~+/x"}, "write the full path"),
        ({"arg": "x", "length": {}}, "bounds like {gt: 100}"),
        ({"arg": "x", "ip_class": "internal"}, "'loopback', 'private'"),
        ({"all": [], "any": []}, "write one of all: [...]"),
        ({"all": []}, "at least 1 item"),
    ],
)
def test_a_wrong_condition_is_refused_with_what_to_write(written, words):
    with pytest.raises(ValidationError) as caught:
        WHEN.validate_python(written)
    assert words in str(caught.value)


def test_operators_are_those_given_by_their_name_in_the_file_and_null_is_a_value():
    condition = WHEN.validate_python({"arg": "x", "equals": None, "in": ["a"], "gt": 1})
    assert condition.operators() == {"equals": None, "in": ["a"], "gt": 1}


def test_one_or_many_become_a_tuple():
    assert as_tuple("a") == ("a",)
    assert as_tuple(["a", "b"]) == ("a", "b")
