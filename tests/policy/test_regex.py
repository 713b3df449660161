"""Patterns that are searched for together are found where each by itself is."""

import random

import pytest

from proxy.policy.regex import bundle, compile_search

PATTERNS = [
    *("a", "^b", "c$", "(?i)d e", "x|y|", r"\bword\b", "[[:digit:]]{3}", "(?s)f.g", "(?m)^h$", "é+", r"\x{212b}"),
    *("(?P<same>i)j", "(?P<same>k)l", "(?U)m+n", r"\Qo.p", r"q\\Qr", r"\Qs\Et", "[^z]{100,900}!", "((u)(v))w", "^$"),
    *(rf"\bdrop\s+table_{number}\b" for number in range(300)),
]
WORDS = ["a", "b", "c", "d E", "D", "\n", "123", "é", "\u212b", "ij", "kl", "mn", "o.p", "q\\r", "st", "uvw", "drop "]


def test_a_text_is_found_by_a_bundle_where_one_of_its_patterns_finds_it():
    bundles = bundle([pattern for pattern in PATTERNS if pattern not in ("^$", "x|y|")])
    assert sum(len(some.patterns) for some in bundles) == len(PATTERNS) - 2
    assert max(len(some.patterns) for some in bundles) > 100
    alone = [[compile_search(pattern) for pattern in some.patterns] for some in bundles]
    chance = random.Random(5)
    seen = set()
    for _ in range(400):
        text = "".join(chance.choices([*WORDS, f"table_{chance.randrange(400)}", "z", " "], k=chance.randrange(7)))
        for some, searches in zip(bundles, alone, strict=True):
            found = any(search(text) for search in searches)
            assert some.search(text) == found, (text, some.patterns)
            seen.add(found)
    assert seen == {True, False}


@pytest.mark.parametrize("text", ["", "x", "\n"])
def test_a_pattern_that_matches_nothing_is_found_in_a_bundle_too(text):
    (some,) = bundle(["^$", "x|y|"])
    assert some.search(text)


def test_a_pattern_has_one_automaton_as_long_as_anyone_holds_it():
    held = compile_search("held-by-this-test")
    assert compile_search("held-by-this-test") is held
    with pytest.raises(ValueError, match="RE2 refuses this pattern"):
        compile_search("(")
