"""What words declare: a name, a parameter or a verb does; a word that only occurs does not."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.probe.declared_words import read_words


def tool(name: str, description: str = "", **properties: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": properties}}


@pytest.mark.parametrize(
    ("said", "network", "hinted"),
    [
        (tool("fetch", "Gets a page."), True, False),
        (tool("get", "Downloads the file."), True, False),
        (tool("weather", "Reads the forecast from the weather service API."), True, True),
        (tool("search", "Searches the web for pages."), True, True),
        (tool("open", "Opens it.", url={"type": "string"}), True, False),
        (tool("open", "Opens it.", place={"type": "string", "format": "uri"}), True, False),
        (tool("tidy", "Tidies up text for the web."), False, True),
        (tool("tidy", "Formats notes, online or offline."), False, True),
        (tool("tidy", "Formats an API description."), False, True),
        (tool("tidy", "Tidies up text."), False, False),
        (tool("search_files", "Finds files by their name."), False, False),
    ],
)
def test_a_network(said: dict[str, Any], network: bool, hinted: bool) -> None:
    declared = read_words(said)
    assert (declared.network, declared.hinted) == (network, hinted)


@pytest.mark.parametrize(
    ("said", "executes"),
    [
        (tool("run_shell", "x"), True),
        (tool("run", "x"), True),
        (tool("run_tests", "x"), True),
        (tool("run_diagnostic", "Looks whether all is well."), False),  # run what?
        (tool("execute", "Does it."), True),
        (tool("do", "Runs a shell command."), True),
        (tool("do", "Executes the given Python script."), True),
        (tool("do", "Does it.", command={"type": "string"}), True),
        (tool("tidy", "Formats text as in a terminal."), False),
        (tool("tidy", "Prints commands of a shell in bold."), False),
        (tool("query", "Executes a SELECT query."), False),
        (tool("starts_a_program", "Tidies up text."), False),
    ],
)
def test_programs(said: dict[str, Any], executes: bool) -> None:
    assert read_words(said).executes is executes


def test_the_environment_is_declared_by_name() -> None:
    assert read_words(tool("get-env")).environment
    assert read_words(tool("show", "Shows the environment.")).environment
    assert not read_words(tool("show", "Shows text.")).environment
