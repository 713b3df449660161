"""What `interlock policy decide` loads, and that it blocks where it cannot; tests/commands/test_decide.py has more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.test_stdio_run import NOT_NEEDED, PRINTS_MODULES
from tests.support.harness import environment, seed_cache

CALL = json.dumps({"tool": "Bash", "arguments": {"command": "ls"}})
BROKEN = """
import sys
sys.modules["proxy.gate.gate"] = None  # as in an installation that is being replaced
from proxy.cli import main
main()
"""


def decide(script: str, state: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", script, "policy", "decide", "--stdin", "--state-dir", str(state)]
    return subprocess.run(words, input=CALL, capture_output=True, text=True, check=False, timeout=60, env=environment())


def test_a_hook_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    seed_cache(tmp_path / "state")
    done = decide(PRINTS_MODULES, tmp_path / "state")
    loaded = set(done.stderr.splitlines()[-1].split())
    assert json.loads(done.stdout)["decision"] == "allow"
    assert "proxy.gate.gate" in loaded
    assert NOT_NEEDED & loaded == set()


def test_an_installation_that_cannot_be_imported_blocks(tmp_path: Path) -> None:
    done = decide(BROKEN, tmp_path / "state")
    assert (done.returncode, done.stdout) == (2, "")
    assert "so it is blocked" in done.stderr


@pytest.mark.parametrize("words", [["--stdin", "--format"], ["--stdin", "--format=nothing"], ["--fly", "--stdin"]])
def test_flags_that_cannot_be_read_block_too(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy.cli", "policy", "decide", *words],
        input=CALL, capture_output=True, text=True, check=False, timeout=60, env=environment(),
    )  # fmt: skip
    assert done.returncode == 2
