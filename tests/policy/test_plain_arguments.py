"""The short way through plain arguments decides as the long way does: over the shipped cases and made-up calls."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import pytest

from proxy.core.model import Call
from proxy.policy import plain_arguments
from proxy.policy.eval_context import NOTHING, EvalContext
from proxy.policy.load import load_policy
from proxy.policy.plain_arguments import read_plainly
from proxy.policy.selectors import SELECTORS
from tests.support.processes import REPOSITORY

WORDS = (
    *("weather", "Paris", "rm", "curl", "sudo", "cat", "ls", "etc", "passwd", "notes.txt", "env", "a=b", "-rf", "x"),
    *(
        "10.0.0.1",
        "metadata.",
        "metadata.x",
        "example.com",
        "https://example.com",
        "/etc/passwd",
        "~",
        "~root",
        "$HOME",
    ),
    *(
        "%2e",
        "a.",
        ".",
        "..",
        ".ssh",
        "(rm",
        "{rm",
        "'rm",
        '"rm',
        "r'm'",
        "\\rm",
        "FOO=1",
        "|",
        ";",
        "&&",
        "[1]",
        '{"a"',
    ),
    *(
        "\u0440m",
        "caf\u00e9",
        "\u200b",
        "GET",
        "-",
        "0x7f000001",
        "2130706433",
        "18th",
        "!",
        "#!/bin/sh",
        "host:80",
        ":",
    ),
    *(
        "base64",
        "python3",
        "-c",
        "import",
        "os",
        "@file",
        "\t",
        "\n",
        "\x00",
        "1",
        "*",
        "**",
        "",
        "`id`",
        "rm.exe",
        "nc",
    ),
)
NAMES = (
    *("query", "q", "limit", "unit", "notes", "path", "filePath", "file", "url", "host", "command", "cmd", "args"),
    *("argv", "script", "input", "target", "source", "text", "body", "name", "title", "x", "", "run", "program", "to"),
    *("Commands", "URL", "x-path", "id", "code", "options", "parameters", "attachment", "database"),
)
TOOLS = ("search", "walk_search", "shell", "run_query", "read_file", "http_request", "exec", "create_issue", "x", "")
POLICIES = ("profiles/strict.yaml", "shell.yaml", "filesystem.yaml", "web.yaml")


def random_arguments(chance: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(chance.randrange(4)):
        text = chance.choice(("", " ", "  ")).join(chance.choice(WORDS) for _ in range(chance.randrange(1, 5)))
        if chance.random() < 0.5:
            text = " ".join(chance.choice(("weather", "in", "Paris.", "rm", "x", "10", "a;")) for _ in range(4))
        inner = {
            chance.choice(NAMES): text,
            chance.choice(NAMES): chance.choice((1, "rain", {chance.choice(NAMES): "in"})),
        }
        value: Any = chance.choice(
            (text, text, text, text, chance.randrange(99), 1.5, True, None, [text], inner, inner)
        )
        made[chance.choice(NAMES)] = value
    return made


def test_where_arguments_are_plain_no_selector_chooses_any() -> None:
    chance = random.Random(20)
    plain = 0
    for _ in range(6000):
        arguments, tool = random_arguments(chance), chance.choice(TOOLS)
        found = read_plainly(EvalContext(arguments, tool))
        if found is not None and found.selects_nothing:
            plain += 1
            chosen = {name: select(EvalContext(arguments, tool)) for name, select in SELECTORS.items()}
            assert all(selection is NOTHING for selection in chosen.values()), (tool, arguments, chosen)
    assert plain > 800  # the short way is taken often enough to be tested


@pytest.mark.parametrize("name", POLICIES)
def test_the_short_way_and_the_long_way_decide_the_same(name: str) -> None:
    policy, chance = load_policy(REPOSITORY / "policies" / name), random.Random(name)
    cases = [test.call for rule in policy.rules.values() for test in rule.tests]
    calls = [Call(case.method, case.server, case.agent, case.tool, dict(case.arguments or {})) for case in cases]
    calls += [Call("tools/call", "server", "agent", chance.choice(TOOLS), random_arguments(chance)) for _ in range(300)]
    short = [policy.decide(call) for call in calls]
    with patch.object(plain_arguments, "_read", lambda _context: None):
        assert [policy.decide(call) for call in calls] == short


@pytest.mark.parametrize(
    ("arguments", "plain", "nothing"),
    [
        ({}, True, True),
        ({"query": "what to wear in Paris. It rains.", "limit": 5, "exact": True, "cursor": None}, True, True),
        ({"query": "rm the rain"}, True, True),  # prose may begin with the name of a program
        ({"x": "rm the rain"}, True, False),
        ({"path": "notes"}, True, False),
        ({"query": "see notes.txt"}, True, False),
        ({"query": "100%"}, False, False),
        ({"query": "caf\u00e9"}, False, False),
        ({"query": ' {"a": 1}'}, False, False),
        ({"query": ["a"]}, False, False),
        ({"query": "rain", "near": {"city": "Paris", "within": {"unit": "miles", "limit": 5}}}, True, True),
        ({"near": {"path": "notes"}}, True, False),
        ({"near": {"x": "rm the rain"}}, True, False),
        ({"near": {"city": "see notes.txt"}}, True, False),
        ({"near": {"city": "100%"}}, False, False),
        ({"near": {"city": ' {"a": 1}'}}, False, False),
        ({"near": {"cities": ["Paris"]}}, False, False),
        ({"near": {"x" * 513: "words"}}, True, False),
        ({"near": [{"city": "Paris"}]}, False, False),
        ({str(n): {str(m): {} for m in range(8)} for n in range(10)}, False, False),
        ({"near": {str(n): n for n in range(65)}}, False, False),
        ({str(n): n for n in range(65)}, False, False),
        ({"x" * 513: "words"}, True, False),  # no name so long is kept in a cache
    ],
)
def test_what_is_plain(arguments: dict[str, Any], plain: bool, nothing: bool) -> None:
    found = read_plainly(EvalContext(arguments, "search"))
    assert (found is not None, found is not None and found.selects_nothing) == (plain, nothing)


def test_arguments_of_a_tool_that_runs_command_lines_are_not_settled_by_their_words() -> None:
    found = read_plainly(EvalContext({"query": "list the rain"}, "shell"))
    assert found is not None
    assert not found.selects_nothing


def test_arguments_are_read_once_for_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    context = EvalContext({"query": ["not plain"]}, "search")
    assert read_plainly(context) is None
    monkeypatch.setattr(plain_arguments, "_read", lambda _context: pytest.fail("read again"))
    assert read_plainly(context) is None
