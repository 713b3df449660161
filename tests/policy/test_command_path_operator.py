"""The operators `command_path_under` and `command_host_in`."""

import pytest

from proxy.policy.arg_path import EvalContext, parse_arg
from proxy.policy.command_path_operator import command_host_in, command_path_under, view_command_paths
from proxy.policy.views import MAY, NO, YES, WrongTypeError


def judge(operator, operand, value):
    return operator(parse_arg("value"), operand)(EvalContext({"value": value}))


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        ("cat /a/b", YES),
        ("cat /a/b /c", MAY),
        ("cat /a/$x", MAY),
        ("cat /c", NO),
        ("cat x", NO),
        ("cat a", NO),
        ("", NO),
    ],
)
def test_an_allow_needs_every_path_under_the_folder_and_a_deny_one(value, bits):
    assert judge(command_path_under, "/a", value) == bits


@pytest.mark.parametrize(
    ("value", "bits"),
    [("curl https://a.test", YES), ("curl https://a.test b.test", MAY), ("curl $x", NO), ("ls a.test", NO)],
)
def test_an_allow_needs_every_host_and_a_deny_one(value, bits):
    assert judge(command_host_in, "a.test", value) == bits


def test_a_relative_root_covers_words_of_the_folder_that_the_server_starts_in():
    assert judge(command_path_under, ".", "cat x") == YES
    assert judge(command_path_under, ".", "cat ../x") == NO


def test_a_call_without_the_argument_does_not_match():
    assert command_path_under(parse_arg("value"), "/a")(EvalContext({})) == NO


@pytest.mark.parametrize("value", [5, {"a": 1}, ["a", 5]])
def test_what_is_no_command_line_has_no_view(value):
    with pytest.raises(WrongTypeError):
        view_command_paths(value)


@pytest.mark.parametrize("word", ["~/.ssh/key", "$HOME/.ssh/key", "${HOME}/.ssh/key"])
def test_the_home_of_a_line_is_the_one_that_the_policy_names(word):
    test = command_path_under(parse_arg("value"), "/srv/bot/.ssh")
    assert test(EvalContext({"value": f"cat {word}"}, homes=("/srv/bot",))) != NO
    assert test(EvalContext({"value": f"cat {word}"}, homes=("/srv/other",))) == NO
