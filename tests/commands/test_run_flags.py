"""The plain forms of `interlock run` and `policy decide`: read as typer reads it, and everything else left to typer."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.main import get_command

from proxy.commands import policy
from proxy.commands.command_tree import app
from proxy.commands.run_flags import (
    COMPLETION,
    DecideFlags,
    RunFlags,
    parse_decide_flags,
    parse_run_flags,
    with_optional_value,
)

PLAIN = [
    ["--", "true"],
    ["--", "true", "--flag", "--", "--agent", "x"],
    ["--", "", "x"],
    ["--", "--help"],
    ["--agent", "bot", "--", "true"],
    ["--agent=bot", "--server-name", "a=b", "--", "true"],
    ["--agent", "a b", "--trace=off", "--log-level", "debug", "--", "true"],
    ["--policy", "~/p.yaml", "--state-dir=/x//y/", "--config", "./c.yaml", "--", "true"],
    ["--trace", "never", "--", "true"],
]
LEFT_TO_TYPER = [
    [],
    ["--"],
    ["true"],
    ["--help"],
    ["-h", "--", "true"],
    ["--help", "--", "true"],
    ["--agent", "bot", "true"],
    ["--agent", "bot", "true", "--", "x"],
    ["--agent", "--", "true"],
    ["--agent", "", "--", "true"],
    ["--agent=", "--", "true"],
    ["--agent=-x", "--", "true"],
    ["--agent", "--trace", "--", "true"],
    ["--agent", "a", "--agent", "b", "--", "true"],
    ["--age", "bot", "--", "true"],
    ["--Agent", "bot", "--", "true"],
    ["--server_name", "a", "--", "true"],
    ["--command", "x", "--", "true"],
    ["--fly", "x", "--", "true"],
]

HOOKS = [
    ["--stdin"],
    ["--stdin", "--format", "claude-code"],
    ["--stdin", "--format=cursor", "--agent", "a b"],
    ["--stdin", "--policy", "~/p.yaml", "--state-dir=/x//y/", "--config", "./c.yaml"],
]
HOOKS_LEFT_TO_TYPER = [
    [],
    ["--help"],
    ["--stdin", "--help"],
    ["--stdin", "--stdin"],
    ["--stdin", "x"],
    ["--stdin=1"],
    ["--agent", "--stdin", "x"],
    ["--format", "plain", "--stdin"],
    ["--stdin", "--format"],
    ["--stdin", "--format", ""],
    ["--stdin", "--format-", "plain"],
    ["--stdin", "--agent", "a", "--agent", "b"],
    ["--stdin", "--agent", "--policy"],
]


def by_typer(words: list[str]) -> RunFlags:
    root = get_command(app).make_context("interlock", ["run", *words])
    _, command, rest = root.command.resolve_command(root, [*root._protected_args, *root.args])  # type: ignore[attr-defined]
    given = command.make_context("run", rest, parent=root).params
    return RunFlags(**{**given, "command": tuple(given["command"])})


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_the_plain_form_is_read_as_typer_reads_it(words: list[str]) -> None:
    flags = parse_run_flags(words)
    assert flags is not None
    assert flags == by_typer(words)


@pytest.mark.parametrize("words", LEFT_TO_TYPER, ids=" ".join)
def test_everything_else_is_left_to_typer(words: list[str]) -> None:
    assert parse_run_flags(words) is None


def hook_by_typer(words: list[str]) -> DecideFlags:
    command = get_command(policy.app).commands["decide"]  # type: ignore[attr-defined]
    return DecideFlags(**command.make_context("decide", list(words)).params)


@pytest.mark.parametrize("words", HOOKS, ids=" ".join)
def test_the_plain_form_of_a_hook_is_read_as_typer_reads_it(words: list[str]) -> None:
    flags = parse_decide_flags(words)
    assert flags is not None
    assert flags == hook_by_typer(words)


@pytest.mark.parametrize("words", HOOKS_LEFT_TO_TYPER, ids=" ".join)
def test_everything_else_of_a_hook_is_left_to_typer(words: list[str]) -> None:
    assert parse_decide_flags(words) is None


def test_every_option_of_a_hook_is_known() -> None:
    command = get_command(policy.app).commands["decide"]  # type: ignore[attr-defined]
    assert {parameter.name for parameter in command.params} == set(DecideFlags._fields)


def test_a_shell_that_completes_is_left_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPLETION, "complete_bash")
    assert parse_run_flags(["--", "true"]) is None
    assert parse_decide_flags(["--stdin"]) is None


def test_every_option_of_the_command_is_known() -> None:
    """An option that is added to the command alone would make each start with it slow again."""
    root = get_command(app).make_context("interlock", ["run", "true"])
    _, command, _ = root.command.resolve_command(root, ["run", "true"])  # type: ignore[attr-defined]
    assert {parameter.name for parameter in command.params} == set(RunFlags._fields)


def test_paths_are_paths() -> None:
    flags = parse_run_flags(["--policy", "p.yaml", "--", "true"])
    assert flags is not None
    assert flags.policy == Path("p.yaml")


@pytest.mark.parametrize(
    ("words", "sandbox"),
    [
        (["--sandbox", "--", "x"], "auto"),
        (["--sandbox", "--trace", "off", "--", "x"], "auto"),
        (["--sandbox", "node", "--", "x"], "node"),
        (["--sandbox=require:./p.yaml", "--", "x"], "require:./p.yaml"),
        (["--", "x", "--sandbox"], None),
    ],
)
def test_a_sandbox_may_have_no_value(words: list[str], sandbox: str | None) -> None:
    flags = parse_run_flags(words)
    assert flags is not None
    assert flags.sandbox == sandbox
    assert with_optional_value(["run", *words])[0] == "run"
    assert with_optional_value(["exec", "--sandbox"]) == ["exec", "--sandbox"]
