"""What `interlock run` loads; tests/commands/test_run.py has its errors, tests/stdio/test_runner.py the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.harness import environment, seed_cache

PRINTS_MODULES = """
import atexit, sys
from proxy.cli import main
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
main()
"""
# Each is a tenth of a second of a start or more, and an MCP client starts many servers at once.
NOT_NEEDED = {"typer", "rich", "pygments", "jsonschema", "asyncpg", "httpx2", "sqlglot", "mitmproxy", "mcp"}


def modules_of_a_run(state: Path) -> set[str]:
    seed_cache(state)
    words = [sys.executable, "-c", PRINTS_MODULES, "run", "--state-dir", str(state), "--trace", "off", "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60, env=environment())
    return set(done.stderr.splitlines()[-1].split())


def test_a_start_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    loaded = modules_of_a_run(tmp_path / "state")
    assert "proxy.gate.gate" in loaded
    assert NOT_NEEDED & loaded == set()
