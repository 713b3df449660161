"""The examples run, end to end, as they are."""

from __future__ import annotations

import subprocess
import sys

from proxy.policy.load import load_sources
from proxy.policy.suite import run_tests
from proxy.redact import Book
from tests.harness import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "two_phase"


def test_the_ten_prompts_end_as_the_scenario_says() -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py")], capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("│ ran ") == 14
    assert run.stdout.count("blocked") == 4


def test_the_examples_policy_passes_its_own_tests() -> None:
    (source,) = load_sources(EXAMPLE / "policy.yaml", Book())
    results = run_tests(source.content.rules)
    assert len(results) == 8
    assert all(result.passed for result in results)
