"""Globs over names."""

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy.globs import compile_globs, is_glob, translate

ALPHABET = "ab.^$|(\\"


@given(st.text("ab.*?", max_size=6), st.text(ALPHABET, max_size=6))
def test_stars_and_question_marks_fit_as_in_a_shell(pattern, name):
    assert compile_globs([pattern])(name) == fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("x[ab]", ["xa"], ["xc", "x"]),
        ("x[!ab]", ["xc"], ["xa"]),
        ("x[^ab]", ["xc"], ["xb"]),
        ("x[a-c]", ["xb"], ["xd"]),
        ("x[[]", ["x["], ["xa"]),
        ("x[", ["x["], ["x"]),
        ("x[\\w]", ["x\\", "xw"], ["xa"]),
        ("a.b", ["a.b"], ["axb"]),
        ("a*", ["a\nb"], ["ba"]),
    ],
)
def test_characters_that_mean_something_to_a_regular_expression_are_taken_as_they_are(pattern, fits, fails):
    test = compile_globs([pattern])
    assert [name for name in (*fits, *fails) if test(name)] == fits


def test_no_patterns_fit_everything_and_an_empty_name_fits_only_a_star():
    assert compile_globs(None)("anything")
    assert compile_globs(["x", "*"])("")
    assert not compile_globs(["x"])("")


def test_a_name_fits_as_a_whole():
    assert not compile_globs(["a?", "b"])("ab1")
    assert not compile_globs(["a*c"])("xabc")


def test_what_is_a_glob_is_seen_by_its_marks():
    assert [is_glob(text) for text in ("a", "a.b", "a*", "a?", "[a]")] == [False, False, True, True, True]
    assert translate("a.*") == r"a\..*"
