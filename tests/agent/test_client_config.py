"""Clients' configurations, rewritten."""

from __future__ import annotations

import json

import pytest

from proxy.agent.client_config import unwrap, wrap
from proxy.errors import ConfigError

CLAUDE = """\
{
    "mcpServers": {
        "files": {
            "command": "npx",
            "args": [
                "-y",
                "@modelcontextprotocol/server-filesystem",
                "/home/é"
            ],
            "env": { "KEY":   "v\\u00e9" }
        },
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
        "bare": {
            "command": "my-server",
            "disabled": false
        },
        "remote": {"url": "https://mcp.example.com"}
    },
    "other":  [1,2 , 3]
}
"""
WRAPPED = """\
{
    "mcpServers": {
        "files": {
            "command": "interlock",
            "args": [
                "run",
                "--server-name",
                "files",
                "--",
                "npx",
                "-y",
                "@modelcontextprotocol/server-filesystem",
                "/home/é"
            ],
            "env": { "KEY":   "v\\u00e9" }
        },
        "time": {"command": "interlock", "args": ["run", "--server-name", "time", "--", "uvx", "mcp-server-time"]},
        "bare": {
            "command": "interlock",
            "args": ["run", "--server-name", "bare", "--", "my-server"],
            "disabled": false
        },
        "remote": {"url": "https://mcp.example.com"}
    },
    "other":  [1,2 , 3]
}
"""
NAME = ["interlock"]


def test_commands_are_wrapped_and_everything_else_stays_as_it_was() -> None:
    done = wrap(CLAUDE, NAME)
    assert done.text == WRAPPED
    assert done.changed == ("files", "time", "bare")
    assert list(done.unchanged) == ["remote"]
    assert "URL" in done.unchanged["remote"]


def test_wrapping_again_changes_nothing() -> None:
    again = wrap(WRAPPED, NAME)
    assert again.text == WRAPPED
    assert again.changed == ()
    assert again.unchanged["files"] == "it is already wrapped"


def test_unwrapping_gives_the_commands_back() -> None:
    plain = unwrap(WRAPPED)
    assert plain.changed == ("files", "time", "bare")
    servers, before = json.loads(plain.text)["mcpServers"], json.loads(CLAUDE)["mcpServers"]
    assert servers.pop("bare") == {**before.pop("bare"), "args": []}
    assert servers == before


@pytest.mark.parametrize("words", [["interlock"], ["/opt/venv/bin/interlock"], ["/usr/bin/python3", "-m", "proxy.cli"]])
def test_whatever_interlock_was_called_it_is_known_again(words: list[str]) -> None:
    done = wrap(CLAUDE, words)
    assert wrap(done.text, NAME).changed == ()
    assert json.loads(unwrap(done.text).text)["mcpServers"]["time"] == {"command": "uvx", "args": ["mcp-server-time"]}


@pytest.mark.parametrize(
    "around",
    [
        {"servers": "S", "inputs": []},
        {"mcp": {"servers": "S"}},
        {"context_servers": "S"},
        {"projects": {"/home/me": {"mcpServers": "S"}, "/srv": {"mcpServers": {}}}},
    ],
)
def test_servers_are_found_where_clients_keep_them(around: dict) -> None:
    text = json.dumps(around).replace('"S"', '{"a": {"type": "stdio", "command": "${input:x}", "args": []}}')
    done = wrap(text, NAME)
    assert done.changed == ("a",)
    assert '"command": "interlock", "args": ["run", "--server-name", "a", "--", "${input:x}"]' in done.text


def test_a_command_with_dashes_of_its_own_comes_back_whole() -> None:
    text = '{"mcpServers":{"a":{"command":"npm","args":["exec","--","server","--","x"]}}}'
    done = wrap(text, NAME)
    assert json.loads(unwrap(done.text).text) == json.loads(text)


@pytest.mark.parametrize(
    "words",
    [
        ["interlock", "run", "--", "x"],
        ["/opt/bin/interlock", "run", "--agent", "me", "--server-name", "a", "--", "x"],
        ["uvx", "--from", "mcp-interlock", "interlock", "run", "--", "x"],
        ["python3", "-m", "proxy.cli", "run", "x"],
    ],
)
def test_what_runs_behind_interlock_by_hand_is_not_wrapped_again(words: list[str]) -> None:
    text = json.dumps({"mcpServers": {"a": {"command": words[0], "args": words[1:]}}})
    done = wrap(text, NAME)
    assert (done.text, done.unchanged) == (text, {"a": "it is already wrapped"})
    assert unwrap(text).changed == ()


def test_a_server_that_only_looks_wrapped_is_wrapped() -> None:
    text = '{"mcpServers":{"a":{"command":"other","args":["run","--server-name","a","--","x"]}}}'
    assert wrap(text, NAME).changed == ("a",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON: line 1, column 1"),
        ('{\n  "mcpServers": {},,\n}', "line 2"),
        ('{\n  // mine\n  "mcpServers": {]\n}', "line 3"),
        ('{"mcpServers": {}} /* no end', "not JSON"),
        ("[]", "list, not an object"),
        ("{}", "no MCP servers"),
        ('{"mcpServers": {}}', "no MCP servers"),
        ('{"mcpServers": []}', "no MCP servers"),
        ('{"mcpServers": {"a": 1}}', "server 'a' is int"),
        ('{"mcpServers": {"a": {"command": 1}}}', "command that is not a string"),
        ('{"mcpServers": {"a": {"command": ""}}}', "command that is not a string"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', "not a list of strings"),
        ('{"mcpServers": {"a": {"command": "x", "args": [1]}}}', "not a list of strings"),
        ('{"mcpServers": {"a": {"command": "x", "command": "y"}}}', "'command' occurs twice"),
    ],
)
def test_what_cannot_be_rewritten_safely_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        wrap(text, NAME)


COMMENTED = """\ufeff// what I use
{
  "servers": { // "command": "no"
    "a": {
      /* the one, "args": [] */
      "command": "x" /* here */,
      "env": {"URL": "https://a//b", "GLOB": "/*,]"},
    },
    "b": {"command": "y", "args": [
      "1", // one
    ],},
  },
}
"""


def test_comments_and_trailing_commas_stay_where_they_are() -> None:
    done = wrap(COMMENTED, NAME)
    assert done.changed == ("a", "b")
    assert done.text == COMMENTED.replace(
        '"command": "x" /* here */',
        '"command": "interlock",\n      "args": ["run", "--server-name", "a", "--", "x"] /* here */',
    ).replace(
        '{"command": "y", "args": [\n      "1", // one\n    ],}',
        '{"command": "interlock", "args": [\n      "run",\n      "--server-name",\n      "b",\n      "--",'
        '\n      "y",\n      "1"\n    ],}',
    )
    assert wrap(done.text, NAME).changed == ()
    assert unwrap(done.text).changed == ("a", "b")


def test_a_server_without_a_command_is_left_alone() -> None:
    assert wrap('{"servers": {"a": {}}}', NAME).unchanged == {"a": "it has no command"}
