"""The examples run, end to end, as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proxy.policy.load import load_sources
from proxy.policy.rule_tests import run_tests
from proxy.redact import builtin
from tests.support.harness import REPOSITORY
from tests.support.system_needs import needs

EXAMPLES = REPOSITORY / "examples"


def run(*words: str | Path) -> str:
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_ten_prompts_end_as_the_scenario_says() -> None:
    shown = run(sys.executable, EXAMPLES / "two_phase" / "run.py")
    assert shown.count("│ ran ") == 14
    assert shown.count("blocked") == 4


@needs("strace")
def test_the_demo_goes_as_its_picture_in_the_readme_shows(tmp_path: Path) -> None:
    # As `make demo` does, once what it installs is there.
    run("make", "-o", ".venv/.dev", "-o", "system-packages", "demo", f"ARGS=--picture {tmp_path / 'demo.svg'}")
    drawn, kept = ((folder / "demo.svg").read_text() for folder in (tmp_path, REPOSITORY / "docs"))
    assert drawn == kept, "the demo changed: `make demo-picture` draws it anew"
    assert drawn.count("http") == 2, "a picture fetches nothing: its namespace and the demo's server are all it names"


@pytest.mark.parametrize(("example", "tests"), [("two_phase", 8), ("demo", 5)])
def test_an_examples_policy_passes_its_own_tests(example: str, tests: int) -> None:
    (source,) = load_sources(EXAMPLES / example / "policy.yaml", builtin())
    results = run_tests(source.content.rules)
    assert len(results) == tests
    assert all(result.passed for result in results)
