"""`interlock halt`, `halts` and `resume`, from beginning to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.commands.command_tree import app
from proxy.identity.token_file import OperatorTokens

RUN = CliRunner()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INTERLOCK_STATE_DIR", str(tmp_path))
    OperatorTokens(tmp_path).ensure()
    return tmp_path


def run(*arguments: str, code: int = 0) -> str:
    result = RUN.invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_halt_list_and_resume(folder: Path) -> None:
    assert "Nothing is halted." in run("halts")
    made = json.loads(run("halt", "--agent", "bot", "--reason", "odd", "--json"))
    assert (made["scope"], made["operator"], made["reason"]) == ("agent bot", "operator", "odd")
    run("halt", "--tool", "pay", "--now", "--reason", "odd")
    listed = run("halts")
    assert "agent bot" in listed
    assert "tool pay (cut)" in listed
    assert "Resumed: agent bot" in run("resume", "--agent", "bot", "--reason", "fixed")
    assert "Resumed: tool pay" in run("resume", "--reason", "fixed")
    assert run("halts", "--json") == ""


def test_a_reason_is_needed(folder: Path) -> None:
    run("halt", "--agent", "bot", code=2)
    run("resume", "--all", code=2)
