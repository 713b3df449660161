"""Reading command lines."""

import pytest

from proxy.policy.shell import MAX_SCRIPT, parse_script


def words(text):
    return [[word.text for word in command.words] for command in parse_script(text).commands if not command.loop]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("a b c", [["a", "b", "c"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a''b\"c\"d", [["abcd"]]),
        ("a ''", [["a", ""]]),
        ("a; b && c || d | e & f", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]),
        ("a # b; c", [["a"]]),
        ("a#b", [["a#b"]]),
        ("a >x 2>&1 <y b", [["a", "b"]]),
        ("a &>x b", [["a", "b"]]),
        ("a 5 >x", [["a", "5"]]),
        ("a\\\nb", [["ab"]]),
        ("$'a\\x62\\143\\u0064\\n'", [["abcd\n"]]),
        ("echo $(a b)", [["a", "b"], ["echo", ""]]),
        ("echo `a \\`b\\``", [["b"], ["a", ""], ["echo", ""]]),
        ("echo ${x:-$(a)}", [["a"], ["echo", ""]]),
        ("a <<X\nb $(c)\nX\nd", [["a"], ["c"], ["d"]]),
        ("a <<'X'\nb $(c)\nX\nd", [["a"], ["d"]]),
        ("a <<-X\n\tb\n\tX\nd", [["a"], ["d"]]),
        ("if a; then b; else c; fi", [["a"], ["b"], ["c"]]),
        ("for i in x y; do a $i; done", [["a", ""]]),
        ("while a; do b; done", [["a"], ["b"]]),
        ("case $x in a) b;; esac", [["b"]]),
        ("f() { a; }", [["f"], ["a"]]),
        ("{ a; }", [["a"]]),
        ("(a; (b))", [["a"], ["b"]]),
        ("a$IFS'b'", [["a", "b"]]),
        ("a${IFS}b", [["a", "b"]]),
        ('"a$IFS"', [["a"]]),
    ],
)
def test_a_command_line_is_read_into_its_commands(text, expected):
    script = parse_script(text)
    assert [c for c in words(text) if c] == expected
    assert script.problem is None


@pytest.mark.parametrize("text", ["'a", '"a', "`a", "$(a", "${a", "(a", "a)", "$'a", "a <(b", '"$(a"'])
def test_what_is_left_open_is_a_problem(text):
    assert parse_script(text).problem is not None


def test_a_pipe_and_a_here_string_are_told_of():
    _, second = parse_script("a | b").commands
    assert second.piped
    (only,) = parse_script("a <<< 'x y'").commands
    assert only.fed == ("x y",)


def test_expansion_makes_a_word_dynamic():
    for text in ("$a", "a$b", "a*", "?", "{a,b}", "$(a)", "`a`", "${a}", '"$a"', "$1", "$@", "a[bc]"):
        assert parse_script(text).commands[-1].words[0].dynamic, text
    for text in ("a", "'$a'", "\\$a", "'*'", "a{}b", "[", "{}"):
        assert not parse_script(text).commands[-1].words[0].dynamic, text


def test_very_long_and_very_deep_scripts_are_problems():
    assert parse_script("a" * (MAX_SCRIPT + 1)).problem
    assert parse_script("$(" * 50 + "a" + ")" * 50).problem
