"""The examples run, end to end, as they are."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from proxy.policy.load import load_sources
from proxy.policy.rule_tests import run_tests
from proxy.redact import builtin
from tests.support.harness import REPOSITORY
from tests.support.system_needs import needs
from tests.support.timeouts import PATIENCE

EXAMPLES = REPOSITORY / "examples"


def run(*words: str | Path) -> str:
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_ten_prompts_end_as_the_scenario_says() -> None:
    shown = run(sys.executable, EXAMPLES / "two_phase" / "run.py")
    assert len(re.findall(r" (ran|denied|blocked)\b", shown)) == 10
    assert shown.count(" blocked ") == 2
    assert "expected" not in shown
    assert "INFO" not in shown


@needs("strace")
def test_the_demo_goes_as_its_picture_in_the_readme_shows(tmp_path: Path) -> None:
    # As `make demo` does, once what it installs is there.
    run("make", "-o", ".venv/.run", "demo", f"ARGS=--picture {tmp_path / 'demo.svg'}")
    drawn, kept = ((folder / "demo.svg").read_text() for folder in (tmp_path, REPOSITORY / "docs"))
    assert drawn == kept, "the demo changed: `make demo-picture` draws it anew"
    # A picture fetches nothing: its namespace, the demo's server and the console are all it names.
    assert drawn.count("http") == 3


@needs("strace")
def test_the_tour_leaves_the_console_open_until_it_is_interrupted() -> None:
    command = [sys.executable, str(EXAMPLES / "demo" / "run.py"), "--console"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, start_new_session=True) as tour:
        try:
            assert tour.stdout is not None
            link = next(found for line in tour.stdout if (found := re.search(r"http://\S+/login#\S+", line)))
            with urllib.request.urlopen(link[0].partition("#")[0], timeout=PATIENCE) as page:
                assert b"Interlock console" in page.read()
            tour.send_signal(signal.SIGINT)
            tour.stdout.read()
            assert tour.wait(PATIENCE) == 0
        finally:
            end_with_children(tour)


def end_with_children(tour: subprocess.Popen[str]) -> None:
    """End the tour and what it started, whatever became of it: leaving `with` would wait for it for ever."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(tour.pid, signal.SIGKILL)


@pytest.mark.parametrize(("example", "tests"), [("two_phase", 8), ("demo", 7)])
def test_an_examples_policy_passes_its_own_tests(example: str, tests: int) -> None:
    (source,) = load_sources(EXAMPLES / example / "policy.yaml", builtin())
    results = run_tests(source.content.rules)
    assert len(results) == tests
    assert all(result.passed for result in results)
