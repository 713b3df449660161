"""`interlock halts` is tested with `interlock halt`; here what it prints of hostile names."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from proxy.commands.command_tree import app
from proxy.core.halts import Halt
from proxy.identity.token_file import OperatorTokens
from proxy.store.halt_file import HaltFile


def test_a_name_does_not_drive_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    OperatorTokens(tmp_path).ensure()
    HaltFile(tmp_path).add(Halt("h1", "a\x1b[31mb", "olga", 1.0, agent="x\x07"))
    shown = CliRunner().invoke(app, ["halts", "--state-dir", str(tmp_path)]).output
    assert "\x1b" not in shown
    assert "\x07" not in shown
