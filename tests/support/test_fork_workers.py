"""Tests that run in forked processes come to the same end as in one, and none is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY
from tests.support.timeouts import PATIENCE

SHARED = """
import os, pathlib, pytest

@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    yield folder
    pathlib.Path(os.environ["ENDED"], str(os.getpid())).touch()
"""
PASSES = """
import os, pytest
started = os.getppid()

@pytest.mark.parametrize("number", range(3))
def test_passes(number, shared, capfd):
    assert os.getpid() != started
    os.write(1, b"mine")
    assert capfd.readouterr().out == "mine"
"""
FAILS = """
import pytest

def test_fails(shared):
    print("said before")
    assert [1, 2] == [1, 3]

@pytest.mark.skip(reason="not now")
def test_skipped(): ...
"""
DIES = """
import os, signal

def test_first(shared): ...

def test_dies(): os.kill(os.getpid(), signal.SIGKILL)

def test_never(): ...
"""


def run(folder: Path, *flags: str, **files: str) -> tuple[int, str]:
    """Run tests in two processes; return pytest's exit code and what it says."""
    for name, text in {"conftest": SHARED, **files}.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "ended").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    # Processes that hang say where before the time is up.
    flags = (*flags, "-o", f"faulthandler_timeout={PATIENCE / 2}")
    words = ["-p", "tests.support.fork_workers", "--forks", "2", "-ra", "-p", "no:cacheprovider", *flags, str(folder)]
    env = os.environ | {"PYTHONPATH": str(REPOSITORY), "PLAIN_PROCESSES": "1", "ENDED": str(folder / "ended")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_results_are_those_of_one_process_and_fixtures_end(tmp_path: Path) -> None:
    code, said = run(tmp_path, test_a=PASSES, test_b=FAILS, test_c=PASSES)
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert "1 failed, 6 passed, 1 skipped" in said
    assert "assert [1, 2] == [1, 3]" in said
    assert "said before" in said
    assert 1 <= len(list((tmp_path / "ended").iterdir())) <= 2


def test_a_test_that_ends_its_process_fails_and_so_does_what_was_to_come(tmp_path: Path) -> None:
    code, said = run(tmp_path, test_a=DIES, test_b=PASSES)
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert "2 failed, 4 passed" in said
    assert "FAILED test_a.py::test_dies" in said
    assert "FAILED test_a.py::test_never" in said
    assert "-9" in said


def test_after_the_failures_that_are_allowed_nothing_more_is_begun(tmp_path: Path) -> None:
    code, said = run(tmp_path, "-x", test_a=FAILS, **{f"test_b{number}": PASSES for number in range(30)})
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert "stopping after 1 failures" in said
    assert "1 failed" in said
