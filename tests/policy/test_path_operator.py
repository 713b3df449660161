"""The `path_under` operator."""

import pytest

from proxy.policy.arg_path import parse_arg
from proxy.policy.eval_context import EvalContext
from proxy.policy.path_operator import compile_roots, gather_paths, path_under, reach_of, read_root, view_path
from proxy.policy.views import MAY, NO, YES, WrongTypeError


def judge(operand, value):
    return path_under(parse_arg("path"), operand)(EvalContext({"path": value}))


@pytest.mark.parametrize(
    ("root", "form"),
    [
        ("/etc", "/etc/"),
        ("/a/./b/../c//", "/a/c/"),
        ("c:\\Windows", "/C:/Windows/"),
        (".", "./"),
        ("src", "./src/"),
        ("./src/", "./src/"),
        ("/", "/"),
        ("/..", "/"),
    ],
)
def test_a_folder_of_a_policy_is_resolved_and_ends_at_a_component(root, form):
    assert read_root(root) == form


@pytest.mark.parametrize(
    ("operand", "value", "bits"),
    [
        ("/work", "/work/a", YES),
        ("/work", "/WORK/a", MAY),
        ("/work", "/workshop", NO),
        ("/work", "/work/../etc", NO),
        ("/work", "/work/..%2fetc", MAY),
        ("/work", "work/a", MAY),
        (".", "a/b", YES),
        (".", "../a", NO),
        ("src", "src/a", YES),
        ("/home/*/.ssh", "/home/me/.ssh/id", YES),
        ("/home/*/.ssh", "/home/me/x/.ssh/id", NO),
        ("**/.ssh", "/a/b/.SSH/id", MAY),
        ("/etc", "/e*/passwd", MAY),
        ("/etc", "**/*.py", NO),
        (["/a", "/b"], "/b/c", YES),
    ],
)
def test_a_path_is_under_a_folder_surely_maybe_or_not(operand, value, bits):
    assert judge(operand, value) == bits


def test_a_path_that_cannot_be_read_is_undecided_even_where_a_reading_is_inside():
    context = EvalContext({"path": "$ELSEWHERE/x"})
    assert path_under(parse_arg("path"), "/work")(context) == context.guess
    assert context.take_trouble().reason == "ambiguous_value"


def test_several_values_must_all_be_inside_for_an_allow():
    test = path_under(parse_arg("files[*]"), "/work")
    assert test(EvalContext({"files": ["/work/a", "/work/b"]})) == YES
    assert test(EvalContext({"files": ["/work/a", "/etc/b"]})) == MAY
    assert test(EvalContext({"files": []})) == NO


@pytest.mark.parametrize(
    ("globs", "searches", "root", "reaches"),
    [
        (["/e*/passwd/"], [], "/etc/", True),
        (["/x*/passwd/"], [], "/etc/", False),
        (["/**/x/"], [], "/etc/ssh/", True),
        (["/etc/"], [], "/etc/ssh/", False),
        ([], ["/**/etc/*.py/"], "/etc/", True),
        ([], ["/**/*.py/"], "/etc/", False),
        ([], ["/**/*.pem/"], "/srv/key.pem/", True),
    ],
)
def test_a_pattern_may_reach_into_a_folder(globs, searches, root, reaches):
    assert reach_of(globs, searches)(root) is reaches


def test_paths_are_gathered_once_per_call_and_only_strings_have_some():
    context = EvalContext({"path": "/a"})
    paths_of = gather_paths(parse_arg("path"))
    assert paths_of(context) is paths_of(context)
    with pytest.raises(WrongTypeError):
        view_path(5)


def test_compiled_roots_hold_with_case_and_the_folded_ones_without():
    roots = compile_roots(("/Work", "/home/*/X"))
    assert roots.hold("/Work/a/")
    assert roots.hold("/home/me/X/a/")
    assert not roots.hold("/work/a/")
    assert roots.folded == ("/work/",)
    assert roots.folded_glob("/home/me/x/")
