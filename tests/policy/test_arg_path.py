"""What an `arg` path finds in a call."""

import pytest

from proxy.policy.arg_path import parse_arg
from proxy.policy.eval_context import NOTHING, EvalContext
from proxy.policy.text import AmbiguousError, parse_embedded_json

CALL = {
    "path": "/a",
    "PATH": "/b",
    "body": '{"path": "/c", "deep": {"Path": "/d"}}',
    "items": [{"path": "/e", "_path": "/f"}, {"other": 1}],
    "path_": None,
}


@pytest.mark.parametrize(
    ("arg", "exact", "loose"),
    [
        ("path", ["/a"], ["/b", None]),
        ("Path", [], ["/a", "/b", None]),
        ("**.path", ["/a", "/e"], ["/b", "/c", "/d", "/f", None]),
        ("**.path.**", ["/a", "/e"], ["/b", "/c", "/d", "/f", None]),
        ("**.deep.path", [], ["/d"]),
        ("items[*].path", ["/e"], ["/f"]),
        ("**.other", [1], []),
    ],
)
def test_values_at_the_very_place_are_told_from_those_a_lax_server_would_take(arg, exact, loose):
    found = parse_arg(arg).select(EvalContext(CALL))
    assert sorted(found.exact, key=repr) == sorted(exact, key=repr)
    assert sorted(found.loose, key=repr) == sorted(loose, key=repr)


@pytest.mark.parametrize("arg", ["nowhere", "**.nowhere", "**.other.deep", "items[9]", "path.x"])
def test_where_there_is_no_value_at_all_it_is_said_in_one_way(arg):
    assert parse_arg(arg).select(EvalContext(CALL)) is NOTHING


@pytest.mark.parametrize("arguments", [["path"], "path", 5, {5: "x"}])
@pytest.mark.parametrize("arg", ["path", "**.path"])
def test_what_is_no_object_with_names_raises(arguments, arg):
    if arguments != {5: "x"} and arg == "**.path":
        assert parse_arg(arg).select(EvalContext(arguments)) is NOTHING
        return
    with pytest.raises((TypeError, AttributeError)):
        parse_arg(arg).select(EvalContext(arguments))


def test_json_inside_a_string_is_read_and_a_key_twice_in_it_is_ambiguous():
    assert parse_embedded_json(' \ufeff{"a": [1]}') == {"a": [1]}
    assert parse_embedded_json("{a}") is parse_embedded_json("x") is parse_embedded_json("") is None
    with pytest.raises(AmbiguousError):
        parse_embedded_json('{"a": 1, "a": 2}')
