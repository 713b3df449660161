"""Clients' configurations, rewritten."""

from __future__ import annotations

import json
import tomllib

import pytest

from proxy.agent.client_config import JSON, TOML, YAML, Syntax, prefixes, unwrap, wrap
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
    assert done.changed == (("a in /home/me",) if "projects" in around else ("a",))
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
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        wrap(text, NAME)


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ("1", "no object"),
        ("[]", "no object"),
        ('{"command": 1}', "command is not a string"),
        ('{"command": ""}', "command is not a string"),
        ('{"command": []}', "command is not a string"),
        ('{"command": ["x", 1]}', "command is not a list of strings"),
        ('{"command": ["x"], "args": []}', "command is not a list of strings"),
        ('{"command": {"path": "x"}}', "command is not a string"),
        ('{"command": "x", "args": "y"}', "args are not a list of strings"),
        ('{"command": "x", "args": [1]}', "args are not a list of strings"),
        ('{"command": "x", "args": null}', "args are not a list of strings"),
        ('{"command": "x", "command": "y"}', "'command' occurs twice"),
        ('{"command": "x", "args": [], "args": []}', "'args' occurs twice"),
        ('{"comm\\u0061nd": "x"}', "by hand"),
        ("{}", "has no command"),
        ('{"httpUrl": "https://x"}', "interlock exec"),
    ],
)
def test_one_odd_server_is_named_and_left_and_the_others_are_wrapped(odd: str, said: str) -> None:
    text = (
        f'{{"mcpServers": {{"a": {{"command": "x", "args": []}}, "odd": {odd}, "z": {{"command": "y", "args": []}}}}}}'
    )
    done = wrap(text, NAME)
    assert done.changed == ("a", "z")
    assert list(done.unchanged) == ["odd"]
    assert said in done.unchanged["odd"]
    assert odd in done.text
    assert json.loads(unwrap(done.text).text) == json.loads(text)


@pytest.mark.parametrize("name", ["", "--", "a\nb", "x" * 201])
def test_a_name_that_cannot_be_given_to_run_is_left(name: str) -> None:
    text = json.dumps({"mcpServers": {name: {"command": "x", "args": []}}})
    done = wrap(text, NAME)
    assert done.text == text
    assert "name" in done.unchanged[name]


def test_where_a_key_is_repeated_every_one_is_wrapped() -> None:
    # Clients disagree on which of them counts: one that is left would run unwatched.
    server = '"a": {"command": "x", "args": []}'
    text = f'{{"mcpServers": {{{server}, {server}}}, "mcpServers": {{{server}}}}}'
    done = wrap(text, NAME)
    assert done.changed == ("a", "a", "a")
    assert done.text.count('"command": "interlock"') == 3
    assert unwrap(done.text).text == text


OPENCODE = """\
{
  // mine
  "mcp": {
    "files": {"type": "local", "command": ["npx", "-y", "files"], "enabled": true},
    "remote": {"type": "remote", "url": "https://mcp.example.com"},
    "lines": {
      "type": "local",
      "command": [
        "uvx", // runs it
        "lines",
      ],
    },
  },
}
"""


def test_a_command_that_is_a_list_is_wrapped_in_place() -> None:
    done = wrap(OPENCODE, NAME)
    assert done.changed == ("files", "lines")
    assert "exec" in done.unchanged["remote"]
    assert done.text == OPENCODE.replace(
        '["npx"', '["interlock", "run", "--server-name", "files", "--", "npx"'
    ).replace(
        '        "uvx", // runs it',
        "".join(f'        "{word}",\n' for word in ["interlock", "run", "--server-name", "lines", "--"])
        + '        "uvx", // runs it',
    )
    assert unwrap(done.text).text == OPENCODE


CODEX = """\
model = "gpt-5" # the best
[[profiles.x]]
when = 1979-05-27 07:32:00

[mcp_servers.files]   # files
command = "npx" # runs it
args = ["-y", 'server files'] # all

[mcp_servers.files.env]
KEY = "v"

[mcp_servers."two words"]
startup_timeout_sec = 10
command = '/opt/x'

[mcp_servers.lines]
command = "uvx"
args = [
  "lines", # one
]

[mcp_servers.remote]
url = "https://mcp.example.com"

[mcp_servers]
inline = { command = "a", env = { A = "b" } }
dotted.command = "b"
odd = { command = "c", args = [1] }
"""
CODEX_WRAPPED = (
    CODEX.replace('"npx"', '"/bin/interlock"')
    .replace('["-y"', '["run", "--server-name", "files", "--", "npx", "-y"')
    .replace("'/opt/x'", '"/bin/interlock"\nargs = ["run", "--server-name", "two words", "--", \'/opt/x\']')
    .replace('"uvx"', '"/bin/interlock"')
    .replace(
        '  "lines", # one',
        '  "run",\n  "--server-name",\n  "lines",\n  "--",\n  "uvx",\n  "lines", # one',
    )
    .replace('command = "a"', 'command = "/bin/interlock", args = ["run", "--server-name", "inline", "--", "a"]')
    .replace(
        'dotted.command = "b"',
        'dotted.command = "/bin/interlock"\ndotted.args = ["run", "--server-name", "dotted", "--", "b"]',
    )
)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_toml_is_edited_in_place(newline: str) -> None:
    text = CODEX.replace("\n", newline)
    done = wrap(text, ["/bin/interlock"], TOML)
    assert done.text == CODEX_WRAPPED.replace("\n", newline)
    assert done.changed == ("files", "two words", "lines", "inline", "dotted")
    assert "exec" in done.unchanged["remote"]
    assert "args are not a list of strings" in done.unchanged["odd"]
    assert wrap(done.text, NAME, TOML).changed == ()
    servers, before = (tomllib.loads(each)["mcp_servers"] for each in (unwrap(done.text, TOML).text, text))
    for server in servers.values():
        if server.get("args") == []:
            del server["args"]
    assert servers == before


GOOSE = """\
GOOSE_MODEL: x   # the best
extensions:
  developer: {type: builtin, enabled: true}
  files:
    type: stdio
    cmd: npx   # runs it
    args:
      - -y   # yes
      - "server files"
    envs: {}
  flow: {type: stdio, cmd: uvx, args: [a, b]}
  bare:
    cmd: /opt/x
    timeout: 300
  remote:
    type: streamable_http
    uri: https://mcp.example.com
  odd:
    cmd: x
    args: [1]
"""
GOOSE_WRAPPED = (
    GOOSE.replace("npx   #", '"/bin/interlock"   #')
    .replace(
        "      - -y   # yes",
        "".join(f'      - "{word}"\n' for word in ["run", "--server-name", "files", "--", "npx"])
        + "      - -y   # yes",
    )
    .replace("uvx, args: [a", '"/bin/interlock", args: ["run", "--server-name", "flow", "--", "uvx", a')
    .replace("cmd: /opt/x", 'cmd: "/bin/interlock"\n    args: ["run", "--server-name", "bare", "--", "/opt/x"]')
)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_yaml_is_edited_in_place(newline: str) -> None:
    text = GOOSE.replace("\n", newline)
    done = wrap(text, ["/bin/interlock"], YAML)
    assert done.text == GOOSE_WRAPPED.replace("\n", newline)
    assert done.changed == ("files", "flow", "bare")
    assert done.unchanged.keys() == {"developer", "remote", "odd"}
    assert wrap(done.text, NAME, YAML).changed == ()
    again = wrap(unwrap(done.text, YAML).text, ["/bin/interlock"], YAML)
    assert again.changed == done.changed


def test_yaml_lists_of_servers_have_the_names_that_they_give_themselves() -> None:
    text = "mcpServers:\n- name: a\n  command: x\n- command: y\n  args:\n  - z\n  name: b\n- url: https://c\n"
    done = wrap(text, NAME, YAML)
    assert done.changed == ("a", "b")
    assert list(done.unchanged) == ["server 3"]
    assert '- name: a\n  command: "interlock"\n  args: ["run", "--server-name", "a", "--", "x"]\n' in done.text
    assert '  args:\n  - "run"\n  - "--server-name"\n  - "b"\n  - "--"\n  - "y"\n  - z\n' in done.text


@pytest.mark.parametrize(
    "text",
    [
        "extensions:\n  a: &a {cmd: x, args: [y]}\n  b: *a\n",
        "extensions:\n  a: {cmd: &c x, args: [y]}\n  b: {cmd: *c, args: []}\n",
        "extensions:\n  a:\n    cmd: |\n      x\n    args: [y]\n",
        "extensions:\n  a:\n    ? cmd\n    : x\n",
        "common: &c [y]\nextensions:\n  a: {cmd: x, args: *c}\n",
    ],
)
def test_yaml_whose_parts_are_shared_or_odd_is_left_and_named(text: str) -> None:
    done = wrap(text, NAME, YAML)
    assert (done.text, done.changed) == (text, ())
    assert all("by hand" in why for why in done.unchanged.values())
    assert "a" in done.unchanged


@pytest.mark.parametrize(
    ("text", "syntax", "said"),
    [
        ("[x", TOML, "not TOML"),
        ("x = 1", TOML, "no MCP servers"),
        ("a: [", YAML, "not YAML"),
        ("- a", YAML, "no mapping"),
        ("a: &a [*a]", YAML, "alias"),
        ("a: 1", YAML, "no MCP servers"),
    ],
)
def test_toml_and_yaml_that_cannot_be_read_are_refused(text: str, syntax: Syntax, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        wrap(text, NAME, syntax)


@pytest.mark.parametrize(
    "word", ["a b", "--", "yes", "1", "~", 'q"q', "b\\\\s", "é", "tab\\there", "#x", "&a", "{x}", "$HOME"]
)
@pytest.mark.parametrize(
    ("syntax", "form"),
    [
        (JSON, '{{"mcpServers": {{"a": {{"command": "x", "args": [{}]}}}}}}'),
        (TOML, "[mcp_servers.a]\ncommand = {}\n"),
        (YAML, "extensions:\n  a:\n    cmd: {}\n"),
    ],
    ids=["json", "toml", "yaml"],
)
def test_words_come_back_as_they_were(word: str, syntax: Syntax, form: str) -> None:
    text = form.format(syntax.encode(word))
    done = wrap(text, ["/a b/interlock"], syntax)
    assert done.changed == ("a",), done.unchanged
    plain = unwrap(done.text, syntax).text
    assert syntax.encode(word) in plain
    assert prefixes(done.text, syntax) == [["/a b/interlock"]]
    assert prefixes(plain, syntax) == []


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
        '\n      "y",\n      "1", // one\n    ],}',
    )
    assert wrap(done.text, NAME).changed == ()
    assert unwrap(done.text).changed == ("a", "b")


def test_a_server_without_a_command_is_left_alone() -> None:
    assert wrap('{"servers": {"a": {}}}', NAME).unchanged == {"a": "it has no command"}


def test_a_server_is_put_into_a_sandbox_and_taken_out_again() -> None:
    text = '{"mcpServers": {"files": {"command": "npx", "args": ["server"]}}}'
    done = wrap(text, ["/bin/interlock", "--sandbox=auto"])
    expected = ["run", "--server-name", "files", "--sandbox=auto", "--", "npx", "server"]
    assert json.loads(done.text)["mcpServers"]["files"] == {"command": "/bin/interlock", "args": expected}
    assert wrap(done.text, ["/bin/interlock"]).changed == ()
    assert json.loads(unwrap(done.text).text) == json.loads(text)
    assert prefixes(done.text) == [["/bin/interlock", "--sandbox=auto"]]
