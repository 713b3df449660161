"""Words of a command line: quoting, and what expansion may make of them."""

import pytest

from proxy.policy.shell_words import (
    MAX_SHAPES,
    Draft,
    Shape,
    ShellError,
    Word,
    may_be_all,
    plain_path,
    read_ansi_c,
    read_balanced,
    shape_below,
)


def draft(*parts):
    made = Draft()
    for part in parts:
        if part == "$":
            made.expand(whole=True)
        elif part in ("*", "?"):
            made.glob(part)
        else:
            made.put(part)
    return made.word()


@pytest.mark.parametrize(
    ("parts", "shape"),
    [
        (["a"], None),
        (["build/", "*"], Shape("build/", "", 1, True)),
        (["./", "*"], Shape("", "", 0, True)),
        (["$", "/build"], Shape("", "build", None, False)),
        (["/tmp/", "$"], Shape("", "", None, False)),
        (["/", "$", "x"], Shape("/", "x", None, False)),
        (["$", "/.."], Shape("", "", None, False)),
        (["a", "$", "z"], Shape("a", "z", None, False)),
    ],
)
def test_a_word_keeps_of_its_ends_what_no_expansion_can_change(parts, shape):
    assert draft(*parts).shape == shape


def test_a_word_that_may_become_several_has_no_shape():
    made = Draft()
    made.put("a")
    made.expand(whole=False)
    assert made.word()[:3] == Word("a", True, None)[:3]


@pytest.mark.parametrize(
    ("wanted", "shapes", "may"),
    [
        (["/"], [Shape("", "", None, False)], True),
        (["/"], [Shape("", "build", None, False)], False),
        (["-r"], [Shape("/tmp", "", None, False)], False),
        (["-r", "-f"], [Shape("-", "", None, False)], True),
        (["-r", "/"], [Shape("", "", None, False)], False),
        (["-r", "/"], [Shape("", "", None, True)], True),
        (["~"], [Shape("", "", None, False)], False),
        (["of=/dev/*"], [Shape("of=", "", None, False)], True),
        (["of=/dev/*"], [Shape("if=", "", None, False)], False),
        (["x"], [Shape("abc", "", None, False)] * (MAX_SHAPES + 1), True),
    ],
)
def test_words_may_become_what_a_rule_names(wanted, shapes, may):
    assert may_be_all(wanted, shapes) is may


@pytest.mark.parametrize(
    ("text", "inside", "rest"),
    [
        ("(a (b) c) d", "a (b) c", " d"),
        ("(')') x", "')'", " x"),
        ('("\\")") x', '"\\")"', " x"),
        ("{a\\}b} x", "a\\}b", " x"),
        ("(`)`)", "`)`", ""),
    ],
)
def test_a_bracket_is_closed_by_its_partner_outside_of_quotes(text, inside, rest):
    found, end = read_balanced(text, 0)
    assert (found, text[end:]) == (inside, rest)


@pytest.mark.parametrize("text", ["(a", "('a)", '("a)', "{a\\}"])
def test_a_bracket_or_quote_that_stays_open_is_an_error(text):
    with pytest.raises(ShellError):
        read_balanced(text, 0)


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("cu\\x72l'", "curl"),
        ("\\143url'", "curl"),
        ("\\u0063url'", "curl"),
        ("\\U00000063url'", "curl"),
        ("a\\nb\\t\\e'", "a\nb\t\x1b"),
        ("\\'\\\\'", "'\\"),
        ("\\cA'", "\x01"),
        ("\\UFFFFFFFFx'", "x"),
    ],
)
def test_ansi_c_quotes_are_decoded_as_bash_does(text, decoded):
    assert read_ansi_c(text, 0) == (decoded, len(text))


def test_ansi_c_quotes_that_stay_open_are_an_error():
    with pytest.raises(ShellError):
        read_ansi_c("a\\'", 0)


def test_steps_that_lead_nowhere_are_dropped_from_a_path():
    assert [plain_path(text) for text in ("//", "/./", "/tmp/..", "./a", "a")] == ["/", "/", "/", "a", "a"]
    assert shape_below(["/tmp/a", "//tmp/b"]) == Shape("/tmp/", "", None, True)
