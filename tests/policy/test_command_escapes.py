"""The forms of a program that run other programs."""

import pytest

from proxy.policy.command_escapes import escapes_of


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("tar", ["-I", "x"]),
        ("tar", ["cIf", "x", "y"]),
        ("tar", ["--to-comm=x"]),
        ("make", ["--eval=x"]),
        ("make", ["SHELL=x"]),
        ("sed", ["1e x"]),
        ("sed", ["-n", "-e", "w x"]),
        ("awk", ['BEGIN{system("x")}']),
        ("perl", ["-ne", "x"]),
        ("python3.12", ["-c", "x"]),
        ("git", ["-c", "core.pager=x", "log"]),
        ("ssh", ["-oProxyCommand=x", "h"]),
        ("hash", ["-p", "x", "y"]),
        ("nobody-knows", ["--on-hook=x"]),
        ("nobody-knows", ["a; x"]),
    ],
)
def test_a_form_that_runs_another_program_is_told(name, args):
    assert list(escapes_of(name, args))


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("tar", ["czf", "x.tgz", "y"]),
        ("make", ["-j4", "test"]),
        ("sed", ["-n", "s/e/w/p", "x"]),
        ("awk", ["{print $1}", "x"]),
        ("python3", ["x.py", "y"]),
        ("git", ["log", "--oneline"]),
        ("grep", ["a;b", "x"]),
        ("nobody-knows", ["--verbose", "x"]),
    ],
)
def test_an_ordinary_form_runs_nothing_else(name, args):
    assert list(escapes_of(name, args)) == []
