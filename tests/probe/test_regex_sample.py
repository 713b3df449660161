"""Texts for regular expressions."""

from __future__ import annotations

import re

import pytest

from proxy.probe.regex_sample import example, is_found


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-z]{3,8}$",
        r"^\d{4}-\d{2}-\d{2}$",
        r"^(https?|file)://.+",
        r"^[^/]+/[^/]+$",
        r"\w+\s\W",
        r"^#?([a-f0-9]{6}|[a-f0-9]{3})$",
        r"^[A-Z]{2}(?:-[0-9]+)?$",
        r"^[^a-z0-9]+$",
        r".*",
        "",
    ],
)
def test_a_text_is_found_by_its_pattern(pattern: str) -> None:
    text = example(pattern)
    assert text is not None
    assert re.search(pattern, text)


@pytest.mark.parametrize("pattern", ["(", r"(?P<x>a)(?(x)b|c)", "[z-a]"])
def test_no_text_is_given_where_none_is_thought_of(pattern: str) -> None:
    assert example(pattern) is None


def test_an_evil_pattern_takes_no_time() -> None:
    assert not is_found("^(a+)+$", "a" * 60 + "b")


def test_what_cannot_be_tried_forbids_nothing() -> None:
    assert is_found("(?=a)b", "x")
