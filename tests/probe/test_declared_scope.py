"""What tools and servers declare."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.probe.declared_scope import DeclaredScope, declare_call, declare_server, declare_tool, is_under


def tool(name: str = "x", description: str = "", annotations: Any = None, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": description, "inputSchema": schema, "annotations": annotations}


@pytest.mark.parametrize(
    ("said", "network"),
    [
        (tool("format_note", "Format a note as Markdown."), False),
        (tool("fetch", "Fetches a page."), True),
        (tool("x", "Looks it up", url={"type": "string"}), True),
        (tool("x", "Calls the API of the weather service"), True),
        (tool("x", "Fetches a page", {"openWorldHint": False}), False),
        (tool("x", "Formats", {"openWorldHint": True}), True),
        (tool("x", "Formats", {"openWorldHint": "yes"}), False),
        ({"name": None, "description": 3, "inputSchema": []}, False),
    ],
)
def test_a_network_is_declared_by_hint_or_by_words(said: dict[str, Any], network: bool) -> None:
    assert declare_tool(DeclaredScope(), said).network is network


def test_programs_are_declared_by_words_and_by_name() -> None:
    scope = declare_tool(declare_server(["uvx", "mcp-server-git"], {}, "/"), tool("gitStatus", "Shows the state"))
    assert {"git", "status"} <= scope.words
    assert not scope.executes
    assert declare_tool(DeclaredScope(), tool("run", "Executes a shell command")).executes


@pytest.mark.parametrize(
    ("said", "one_folder", "guarded"),
    [
        ("Read a file from the public directory.", True, False),
        ("Reads a document in the shared documents folder", True, False),
        ("Only works within allowed directories.", True, False),
        ("Read a file at the given path. The directory has to exist.", False, False),
        ("Runs a command in the working directory", False, False),
        ("Get all settings. Requires admin role.", False, True),
        ("This should only be called by a privileged user.", False, True),
        ("Admins only: lists the accounts", False, True),
        ("Adds an administrator to the project. Only the name is required.", False, False),
    ],
)
def test_the_limits_that_a_tool_states(said: str, one_folder: bool, guarded: bool) -> None:
    scope = declare_tool(DeclaredScope(), tool(description=said))
    assert (scope.one_folder, scope.guarded) == (one_folder, guarded)


def test_what_is_read_only_says_so_with_a_boolean() -> None:
    assert declare_tool(DeclaredScope(), tool(annotations={"readOnlyHint": True})).read_only
    assert not declare_tool(DeclaredScope(), tool(annotations={"readOnlyHint": "true"})).read_only


def test_the_command_and_its_variables_grant_paths() -> None:
    command = ["server", "/srv/data", "--dir=/srv/more", ".", "word", "--x"]
    scope = declare_server(command, {"FILE": "/srv/file.json", "PATH": "/usr/bin"}, "/work")
    assert set(scope.granted) == {"/srv/data", "/srv/more", "/work", "/srv/file.json"}


def test_a_package_runner_is_one() -> None:
    assert declare_server(["/usr/bin/npx", "x"], {}, "/").launcher
    assert not declare_server(["node", "x.js"], {}, "/").launcher


def test_arguments_name_paths_also_relative_to_each_other_and_hosts() -> None:
    arguments = {"repo": "/r", "files": ["a.py"], "url": "https://Host.example:8080/x", "uri": "file:///f/g", "n": 3}
    scope = declare_call(DeclaredScope(), arguments, "/work")
    assert {"/r", "/r/a.py", "/f/g"} <= set(scope.named)
    assert scope.hosts == {"host.example", "a.py"}


@pytest.mark.parametrize(
    ("path", "under"),
    [("/a/b", True), ("/a/b/c", True), ("/a/b.1234.tmp", True), ("/a/bc", False), ("/a", False), ("/", False)],
)
def test_a_path_is_under_a_place_at_its_boundary(path: str, under: bool) -> None:
    assert is_under(path, ["/a/b"]) is under


def test_a_server_is_called_after_the_package_that_its_file_is_of() -> None:
    words = declare_server(["node", "/x/node_modules/@some/server-github/dist/index.js"], {}, "/").words
    assert {"server", "github", "index"} <= words
    assert "dist" not in words
    assert "tool" in declare_server(["python", "/v/lib/python3.13/site-packages/mcp_tool/__main__.py"], {}, "/").words
