"""A command line to try, in a state folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy import cli
from tests.support.audit_fixture import TRAIL, World
from tests.support.harness import interlock_cli

type Done = subprocess.CompletedProcess[str]
type Run = Callable[..., Done]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else's settings, and a terminal wide enough for any table."""
    for name in os.environ:
        if name.startswith("INTERLOCK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("INTERLOCK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(environment: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `interlock` with arguments; return what it printed and its exit code."""

    def interlock(*arguments: str, **environ: str) -> Done:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["interlock", *arguments])
            for name, value in environ.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out, err)

    return interlock


@pytest.fixture
def run_process(environment: None) -> Run:
    """Run `interlock` with arguments in a process of its own."""

    def interlock(*arguments: str) -> Done:
        own = {name: value for name, value in os.environ.items() if name.startswith("INTERLOCK_")}
        return interlock_cli(*arguments, env=own, cwd=Path.cwd())

    return interlock


def complaint(done: Done) -> str:
    """Return the one error message of a command that failed as it should."""
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    return done.stderr.removeprefix("error: ").strip()


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """An empty trail, on each kind of store."""
    return World(tmp_path / "state", request.getfixturevalue("database_url") if request.param == "postgres" else None)


@pytest.fixture
def trail(world: World) -> World:
    """A trail with a part in the store and the rest in the local log; tests/store has it in other places too."""
    world.record(*TRAIL[:4])
    world.ship()
    world.record(*TRAIL[4:])
    return world
