"""The root of the command line."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from proxy import __version__, cli
from proxy.errors import ConfigError, PolicyError

runner = CliRunner()
GROUPS = [[], ["config"], ["ca"], ["agents"], ["audit"]]


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_there_for_every_group(group: list[str], flag: str) -> None:
    result = runner.invoke(cli.app, [*group, flag])
    assert result.exit_code == 0
    assert "Usage: interlock" in result.output.replace("root", "interlock")


def test_help_lists_every_command() -> None:
    output = runner.invoke(cli.app, ["--help"]).output
    assert all(name in output for name in ("up", "config", "ca", "agents", "audit"))


COMMANDS = [
    ["up"],
    ["config", "show"],
    ["ca", "show"],
    ["ca", "export"],
    ["agents", "add"],
    ["agents", "list"],
    ["agents", "revoke"],
    ["audit", "tail"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_an_example(command: list[str]) -> None:
    result = runner.invoke(cli.app, [*command, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "Example" in result.output
    assert "--state-dir" in result.output
    assert "--config" in result.output


def test_the_version_is_printed() -> None:
    result = runner.invoke(cli.app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"interlock {__version__}\n")


def test_an_unknown_command_is_a_usage_error() -> None:
    assert runner.invoke(cli.app, ["fly"]).exit_code == 2


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigError("setting x = 'y'"), "error: setting x = 'y'\n"),
        (PolicyError("p.yaml:1:2: [bold]rule[/] \\[x]"), "error: p.yaml:1:2: [bold]rule[/] \\[x]\n"),
        (FileNotFoundError(2, "No such file", "/x"), "error: /x: No such file; "),
        (OSError("odd"), "error: odd; "),
    ],
    ids=["ours", "markup", "the system's", "without a name"],
)
def test_an_error_is_one_message_and_exit_code_1(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = typer.Typer()

    @failing.command()
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", failing)
    monkeypatch.setattr("sys.argv", ["interlock"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (1, "")
    assert err.startswith(message)
