"""Words as a shell expands them."""

import subprocess

import pytest

from proxy.policy.command_expand import MAX_TEXTS, UNKNOWN_TEXT, expand_word, spoken_text
from proxy.policy.shell import parse_script

VARIABLES = {"x": ("/a/b",), "n": ("x",)}


def expand(text, variables=VARIABLES):
    words = parse_script("echo " + text).commands[-1].words[1:]
    return [found.text for word in words for found in expand_word(word, variables)]


@pytest.mark.parametrize(
    "text",
    [
        "$x/c",
        '"$x"/c',
        "${x}c",
        "'$x'",
        "{a,b}/c",
        "{a,{b,c}}d",
        "{a..c}",
        "{3..1}",
        "a'{b,c}'",
        "{a,'b c'}d",
        "${x:1}",
        "${x:0:2}",
        "${x/b/c}",
        "${x//\\//-}",
        "${!n}",
        "$(echo a b)c",
        "$(printf '%s-%s' a b)",
        "`echo a`",
        "{a}",
        "a{,b}",
    ],
)
def test_a_word_becomes_what_bash_makes_of_it(text):
    script = f"x=/a/b; n=x; printf '%s\\n' {text}"
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert " ".join(expand(text)).split() == said.split()


@pytest.mark.parametrize(
    ("text", "among"),
    [("${z:-/d}", "/d"), ("${x#/a}", "/b"), ("${x%/b}", "/a"), ("${x##*/}", "b"), ("${x^^}", "/A/B")],
)
def test_a_modified_variable_may_become_what_bash_makes_of_it(text, among):
    assert among in expand(text)


@pytest.mark.parametrize("text", ["$z", "$(ls)", "${#x}", "${x@P}", "${z%a}", "$(echo a | tr a b)"])
def test_what_only_the_machine_knows_is_unknown(text):
    assert expand(text) == [UNKNOWN_TEXT]


def test_the_number_of_texts_is_bounded_and_the_rest_unknown():
    found = expand("{a,b}" * 12)
    assert len(found) <= MAX_TEXTS + 1
    assert UNKNOWN_TEXT in found
    assert len(expand("$x" * 5000)) == 1


def test_only_echo_and_printf_say_a_text():
    assert spoken_text(["echo", "-e", "a\\x62"]) == "ab"
    assert spoken_text(["printf", "%s/%s", "a", "b"]) == "a/b"
    assert spoken_text(["ls", "a"]) is None
