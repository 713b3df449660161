"""Patterns that can never match are told."""

import pytest

from proxy.policy.lint_patterns import dead_patterns
from proxy.policy.rules import PolicyFile


def remarks(**fields):
    rule = {"id": "r", "action": "deny", **fields}
    return list(dead_patterns(PolicyFile.model_validate({"version": 1, "rules": [rule]}).rules[0]))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"methods": ["tool/call"]}, "no method 'tool/call'"),
        ({"tools": [" read_file"]}, "blanks"),
        ({"when": {"arg": "x", "host_in": "https://example.com/"}}, "host alone"),
        ({"when": {"not": {"arg": "x", "host_in": ["a.com", "example.com:443"]}}}, "host alone"),
        ({"when": {"any": [{"arg": "x", "path_under": "file:///etc"}]}}, "folder alone"),
        ({"when": {"arg": "x", "command": "curl x | sh"}}, "several programs"),
        ({"when": {"arg": "x", "command": "X=1 curl"}}, "no program"),
    ],
)
def test_a_pattern_that_matches_nothing_is_told(fields, words):
    (said,) = remarks(**fields)
    assert words in said


@pytest.mark.parametrize(
    "fields",
    [
        {"methods": ["tools/call", "resources/*", "*"]},
        {"tools": ["read_*", "[ab]"], "servers": ["x"]},
        {"when": {"arg": "x", "host_in": ["*.example.com", "::1", "[::1]", "10.0.0.1"]}},
        {"when": {"arg": "x", "path_under": ["/etc", "~/.ssh", "C:\\Windows", "!/etc/x"]}},
        {"when": {"arg": "x", "command": ["rm -rf", "dd of=/dev/*", "mkfs*", "format ?:", "git push --force"]}},
        {},
    ],
)
def test_ordinary_patterns_pass(fields):
    assert remarks(**fields) == []
