"""The `command` operator: what a deny catches and what an allow covers."""

import pytest

from proxy.policy.arg_path import EvalContext, parse_arg
from proxy.policy.command_operator import command, parse_pattern, view_command
from proxy.policy.views import MAY, NO, YES, WrongTypeError


def judge(operand, value):
    return command(parse_arg("value"), operand)(EvalContext({"value": value}))


@pytest.mark.parametrize(
    ("operand", "value", "bits"),
    [
        ("ls", "ls -la", YES),
        ("ls", "/bin/ls", YES),
        ("ls", "./ls", MAY),
        ("ls", "ls > x", MAY),
        ("ls", "X=1 ls", MAY),
        ("ls", "ls; rm x", MAY),
        ("git status", "git push status", NO),
        ("git status", "git -C x status", MAY),
        ("rm -rf", "rm --recurs --forc /", YES),
        ("rm -rf", "rm -r x", NO),
        ("rm -rf", "rm $ARGS", MAY),
        ("curl", "python3 -c \"os.system('curl')\"", MAY),
        ("curl", "C:\\Windows\\curl.exe x", MAY),
        ("curl", "echo curl", NO),
        (["ls", "cat"], "ls | cat", YES),
    ],
)
def test_an_allow_needs_the_whole_line_covered_and_a_deny_any_program_in_it(operand, value, bits):
    assert judge(operand, value) == bits


def test_an_argv_is_read_as_it_is_and_as_a_server_would_join_it():
    assert judge("curl", ["curl", "x"]) == YES
    assert judge("curl", ["echo", "a; curl x"]) == MAY
    view = view_command(["sh", "-c", "curl x"])
    assert [program.name for program in view.run] == ["sh", "curl"]


@pytest.mark.parametrize("value", [5, {"cmd": "curl"}, ["curl", 5]])
def test_what_is_no_command_line_has_no_view(value):
    with pytest.raises(WrongTypeError):
        view_command(value)


def test_a_pattern_is_a_program_without_folder_and_suffix_and_the_words_behind_it():
    pattern = parse_pattern("/usr/bin/Git.exe push --force")
    assert (pattern.program, pattern.words, pattern.path) == ("git", ("push", "--force"), "/usr/bin/Git.exe")
