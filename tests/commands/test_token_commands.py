"""What `interlock agents` and `interlock operators` share."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.commands.token_commands import token_app
from proxy.errors import ConfigError
from proxy.identity.token_file import AgentTokens, OperatorTokens, Tokens

KINDS = pytest.mark.parametrize("kind", [AgentTokens, OperatorTokens])


class Commands:
    def __init__(self, kind: type[Tokens], state_dir: Path) -> None:
        self._app = token_app(kind, "Manage them.", "The name.", "keep it, {name}.", "Revoke it.")
        self._state_dir = state_dir

    def run(self, *words: str) -> tuple[str, str]:
        done = CliRunner().invoke(self._app, [*words, "--state-dir", str(self._state_dir)])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.stdout, done.stderr


@KINDS
def test_a_token_is_printed_alone_so_that_it_can_be_piped(kind: type[Tokens], tmp_path: Path) -> None:
    out, err = Commands(kind, tmp_path).run("add", "bot")
    assert kind(tmp_path).holder(out.removesuffix("\n")) == "bot"
    assert err == f"{kind.role.capitalize()} bot added. The token is shown only once:\nkeep it, bot.\n"


@KINDS
def test_a_name_is_gone_from_the_list_once_revoked(kind: type[Tokens], tmp_path: Path) -> None:
    commands = Commands(kind, tmp_path)
    kind(tmp_path).add("bot")
    assert "bot" in commands.run("list")[0]
    assert commands.run("revoke", "bot")[1] == f"{kind.role.capitalize()} bot revoked.\n"
    assert "bot" not in commands.run("list")[0]
    with pytest.raises(ConfigError):
        commands.run("revoke", "bot")


@KINDS
def test_the_list_is_one_json_object_per_name_if_asked(kind: type[Tokens], tmp_path: Path) -> None:
    kind(tmp_path).add("bot")
    assert Commands(kind, tmp_path).run("list", "--json")[0].startswith(f'{{"{kind.role}": "bot", "added": 1')
