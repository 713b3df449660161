"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from proxy.commands.options import state_folder, store_settings, takes
from proxy.errors import ConfigError


def test_the_state_folder_is_the_flags_the_environments_or_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLOCK_STATE_DIR", raising=False)
    config = tmp_path / "c.yaml"
    config.write_text("state_dir: /from/file\n")
    assert state_folder(None, config) == Path("/from/file")
    monkeypatch.setenv("INTERLOCK_STATE_DIR", "/from/environment")
    assert state_folder(None, config) == Path("/from/environment")
    assert state_folder(Path("/from/flag"), config) == Path("/from/flag")


def test_the_store_is_where_flag_environment_or_file_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_DATABASE_URL", raising=False)
    config = tmp_path / "c.yaml"
    config.write_text("state_dir: /from/file\n")
    assert store_settings(None, None, config).postgres is None
    assert store_settings(None, None, config).state_dir == Path("/from/file")
    monkeypatch.setenv("INTERLOCK_DATABASE_URL", "postgresql://u:p@environment/d")
    assert store_settings(None, None, config).postgres == "postgresql://u:p@environment/d"
    assert store_settings("postgresql://flag/d", None, config).postgres == "postgresql://flag/d"


def test_a_wrong_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        state_folder(None, tmp_path / "gone.yaml")


def test_a_command_gets_what_is_made_of_its_options() -> None:
    app = typer.Typer()

    def area(width: Annotated[int, typer.Option(min=1)] = 2, height: int = 3) -> int:
        return width * height

    def greeting(name: str = "nobody") -> str:
        return f"hello {name}"

    @app.command()
    @takes(area, greeting)
    def show(square: int, greets: str, *, loud: bool = False) -> None:
        typer.echo(f"{square} {greets} {loud}")

    run = CliRunner().invoke
    assert run(app, ["--height", "5", "--name", "ada", "--loud"]).output == "10 hello ada True\n"
    assert run(app, []).output == "6 hello nobody False\n"
    assert run(app, ["--width", "0"]).exit_code == 2
    assert "--square" not in run(app, ["--help"]).output
