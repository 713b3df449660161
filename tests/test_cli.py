"""The root of the command line, and what holds for every command."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from proxy import cli
from proxy.commands import command_tree
from proxy.commands.run_flags import with_optional_value
from proxy.errors import ConfigError, PolicyError
from proxy.system.package_data import version
from tests.support.command_tree import commands, examples, options
from tests.support.harness import environment
from tests.support.processes import run_module, start_module
from tests.support.timeouts import PATIENCE

runner = CliRunner()
GROUPS = [[], *([entry.name] for entry in command_tree.Commands.entries)]


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_there_for_every_group(group: list[str], flag: str) -> None:
    result = runner.invoke(command_tree.app, [*group, flag], prog_name="interlock")
    assert result.exit_code == 0
    assert " ".join(["Usage: interlock", *group]) in result.output


def test_help_lists_every_command_in_its_panel() -> None:
    output = runner.invoke(command_tree.app, ["--help"], env={"COLUMNS": "200"}).output
    for entry in command_tree.Commands.entries:
        assert f"─ {entry.panel} ─" in output
        assert entry.summary in output


@pytest.mark.parametrize("name", commands())
def test_every_command_explains_itself_with_examples(name: str) -> None:
    result = runner.invoke(command_tree.app, [*name.split()[1:], "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "Example" in result.output
    assert any(name in example for example in examples(name)), examples(name)


def in_words(example: str) -> list[str]:
    """Return what the shell hands over of an example: not its variables, nor where output goes."""
    inner = re.search(r"\$\((.*)\)", example)
    words = shlex.split((inner[1] if inner else example).partition(" > ")[0].partition(" | ")[0])
    words = words[words.index("interlock") :]
    if words[1] == "confine" and " ".join(words[:3]) not in commands():
        words.insert(2, "run")  # what it does by default
    return ["interlock", *with_optional_value(words[1:])]


@pytest.mark.parametrize("line", [line for name in commands() for line in examples(name)])
def test_every_example_is_read_by_the_parser_as_it_stands(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "payments.txt").touch()
    monkeypatch.chdir(tmp_path)
    context = get_command(command_tree.app).make_context("interlock", in_words(line)[1:])
    while isinstance(context.command, TyperGroup):
        left = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, left)
        context = command.make_context(name, rest, parent=context)
    for value in context.params.values():
        if isinstance(value, io.IOBase):
            value.close()


def test_commands_that_use_the_state_folder_take_both_ways_to_say_where_it_is() -> None:
    for name in commands():
        assert ("--state-dir" in options(name)) == ("--config" in options(name)), name


def test_the_version_is_printed() -> None:
    result = runner.invoke(command_tree.app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"interlock {version()}\n")


@pytest.mark.parametrize(
    "words", [["fly"], ["audit", "fly"], ["audit", "tail", "--fly"], ["audit", "tail", "-n", "many"], ["run"]]
)
def test_wrong_usage_is_told_with_the_way_to_help(words: list[str]) -> None:
    result = runner.invoke(command_tree.app, words)
    assert result.exit_code == 2
    assert "-h' for help" in result.output
    assert "Traceback" not in result.output


def call_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> object:
    """Run the command line as a shell would; return the exit code."""
    monkeypatch.setattr("sys.argv", ["interlock", *words])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code


def raising(error: BaseException) -> typer.Typer:
    failing = typer.Typer()

    @failing.command()
    def fail() -> None:
        raise error

    return failing


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigError("setting x = 'y'"), "error: setting x = 'y'\n"),
        (PolicyError("p.yaml:1:2: [bold]rule[/] \\[x]"), "error: p.yaml:1:2: [bold]rule[/] \\[x]\n"),
        (FileNotFoundError(2, "No such file", "/x"), "error: /x: No such file; "),
        (OSError("odd"), "error: odd; "),
        (
            ZeroDivisionError("by zero"),
            "error: ZeroDivisionError: by zero; this is a bug: run it again with PYTHONDEVMODE=1",
        ),
    ],
    ids=["ours", "markup", "the system's", "without a name", "a bug"],
)
def test_an_error_is_one_message_and_exit_code_1(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_tree, "app", raising(error))
    assert call_main(monkeypatch) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert len(err.splitlines()) == 1


def test_a_bugs_traceback_is_shown_to_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_tree, "app", raising(ZeroDivisionError()))
    monkeypatch.setattr("sys.argv", ["interlock"])
    monkeypatch.setattr(sys, "flags", SimpleNamespace(dev_mode=True))
    with pytest.raises(ZeroDivisionError):
        cli.main()


@pytest.mark.parametrize("where", ["inside a command", "around it"])
def test_an_interrupt_ends_quietly(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    failing: Callable[..., object] = raising(KeyboardInterrupt()) if where == "inside a command" else interrupted
    monkeypatch.setattr(command_tree, "app", failing)
    assert call_main(monkeypatch) == 128 + signal.SIGINT
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder that is a file, and around it what the examples name."""
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "payments.txt").write_text("Pay.")
    (tmp_path / "new.yaml").write_text("version: 1\n")
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "a file"
    place.write_text("not a folder")
    return place


def starts(name: str) -> bool:
    """Whether the command starts another, or goes on until it is stopped."""
    return name in {"interlock up", "interlock confine gateway"} or any(
        parameter.name == "command" for parameter in commands()[name].params
    )


KEEPING = [name for name in commands() if "--state-dir" in options(name) and not starts(name)]


@pytest.mark.parametrize("name", KEEPING)
def test_a_state_folder_that_cannot_be_used_is_no_traceback(
    name: str, no_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = call_main(monkeypatch, *in_words(examples(name)[0])[1:], "--state-dir", str(no_folder))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    assert "a bug of ours" not in err
    assert code == 0 or len(err.splitlines()) == 1 or out


@pytest.mark.parametrize("words", [["up"], ["run"], ["probe"], ["exec"], ["confine"]], ids=" ".join)
def test_nothing_is_started_on_a_state_folder_that_cannot_be_used(words: list[str], no_folder: Path) -> None:
    server = ["--", "touch", str(no_folder.with_name("started"))] if words != ["up"] else []
    done = run_module("proxy.cli", *words, "--state-dir", str(no_folder), *server, env=environment())
    assert done.returncode in {1, 125}
    assert done.stderr
    assert "Traceback" not in done.stderr
    assert not no_folder.with_name("started").exists()


def test_output_that_nobody_reads_ends_quietly(tmp_path: Path) -> None:
    """As in `interlock config show | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    with (tmp_path / "err").open("wb+") as err:
        try:
            with start_module("proxy.cli", "config", "show", env=environment(), stdout=writing, stderr=err) as process:
                assert process.wait(PATIENCE) == 1
        finally:
            os.close(writing)
        err.seek(0)
        assert err.read() == b""


COMPLETION = {
    "bash": {"COMP_WORDS": "interlock audit q", "COMP_CWORD": "2"},
    "zsh": {"_TYPER_COMPLETE_ARGS": "interlock audit q"},
    "fish": {"_TYPER_COMPLETE_ARGS": "interlock audit q", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


@pytest.mark.parametrize("shell", COMPLETION)
def test_the_shell_completes_commands(shell: str) -> None:
    env = environment({"_INTERLOCK_COMPLETE": f"complete_{shell}", **COMPLETION[shell]})
    done = run_module("proxy.cli", env=env)
    assert "query" in done.stdout
    assert "tail" not in done.stdout


@pytest.mark.parametrize("shell", COMPLETION)
def test_the_script_for_a_shell_is_printed(shell: str) -> None:
    done = run_module("proxy.cli", env=environment({"_INTERLOCK_COMPLETE": f"source_{shell}"}))
    assert "_INTERLOCK_COMPLETE=complete_" in done.stdout
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=False).returncode == 0


def test_help_and_version_wait_for_no_commands_imports() -> None:
    """Nor for those of the proxy itself, the stores or the policies."""
    asked = (
        "import sys; from proxy.commands.command_tree import app; "
        "app(['--help'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    loaded = done.stdout.split()
    assert "proxy.commands.lazy" in loaded
    assert not {"pydantic", "structlog", "asyncio", "mitmproxy", "proxy.config", "proxy.commands.up"} & set(loaded)
