"""Text from agents and servers: every character of it can be seen."""

from __future__ import annotations

import pytest

from proxy.console.text import MAX_PREVIEW, pretty, preview, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("grüße 日本語 🙂", "grüße 日本語 🙂"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb\u200d", "a\\u200bb\\u200d"),
        ("a\x1b[31m", "a\\u001b[31m"),
        ("nul\x00", "nul\\u0000"),
        ("a\u00a0b\u3000", "a\\u00a0b\\u3000"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("\u3164\u115f\u2800", "\\u3164\\u115f\\u2800"),
        ("x\ufe0f\U000e0100", "x\\ufe0f\\U000e0100"),
        ("two\nlines\r", "two\\u000alines\\u000d"),
        (None, ""),
        (7, "7"),
    ],
)
def test_what_shows_nothing_is_written_as_its_escape(text: object, shown: str) -> None:
    assert visible(text) == shown


def test_line_breaks_stay_where_lines_are_wanted() -> None:
    assert visible("a\nb\u2028", lines=True) == "a\nb\\u2028"


def test_pretty_json_has_every_character_and_breaks_only_its_own_lines() -> None:
    assert pretty({"a": ["x\u202e", 1]}) == '{\n  "a": [\n    "x\\u202e",\n    1\n  ]\n}'
    assert pretty({"a": "x\ny"}) == '{\n  "a": "x\\ny"\n}'


def test_a_preview_is_one_bounded_line() -> None:
    assert preview({"path": "/etc", "n": [1, 2]}) == "path: /etc, n: [1, 2]"
    assert preview(None) == ""
    long = preview({"a": "x" * 10_000, "b": "never"})
    assert len(long) == MAX_PREVIEW + 1
    assert long.endswith("…")
    assert preview({"a": "x\ny"}) == "a: x\\u000ay"
