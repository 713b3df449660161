"""Commands that need Linux say so elsewhere, before they import or start anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from proxy.commands.command_tree import Commands
from proxy.system.needs_linux import COMMANDS, WRITERS, why_not_here
from tests.support.harness import environment, seed_cache

ELSEWHERE = """
import os, signal, sys, sysconfig
sysconfig.get_config_vars()  # of the platform that this really is
sys.platform = "darwin"
os.process_cpu_count = os.cpu_count
for name in ("sched_getaffinity", "pidfd_open", "pipe2", "unshare"):
    vars(os).pop(name, None)
for name in ("sigwaitinfo", "pidfd_send_signal"):
    vars(signal).pop(name, None)
from proxy.cli import main
main()
"""


@pytest.mark.parametrize("name", sorted(COMMANDS | WRITERS))
def test_a_command_that_needs_linux_is_one_and_says_so(name: str) -> None:
    assert name in {entry.name for entry in Commands.entries}
    said = why_not_here([name, "--", "server", "--help"], "darwin")
    assert said is not None
    assert said.startswith(f"`interlock {name}` ")
    assert "this is darwin" in said
    assert why_not_here([name], "linux") is None
    assert why_not_here([name, "--help"], "darwin") is None


@pytest.mark.parametrize("words", [[], ["--help"], ["policy", "test"], ["setup", "--undo"], ["wrap", "f", "--dry-run"]])
def test_what_needs_no_linux_is_let_through(words: list[str]) -> None:
    assert why_not_here(words, "darwin") is None


def elsewhere(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run interlock in a Python that has what macOS has."""
    return subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *words],
        input=stdin, capture_output=True, text=True, check=False, timeout=60, env=environment(),
    )  # fmt: skip


@pytest.mark.parametrize("words", [["up"], ["run", "--", "true"]], ids=" ".join)
def test_the_error_is_one_line(words: list[str]) -> None:
    done = elsewhere(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: `interlock {words[0]}` needs Linux")
    assert "Traceback" not in done.stderr


def test_the_policy_can_be_tested_and_asked_without_linux(tmp_path: Path) -> None:
    assert "tests passed" in elsewhere("policy", "test").stdout
    call = '{"tool": "read_file", "arguments": {"path": "/etc/shadow"}}'
    seed_cache(tmp_path / "state")
    done = elsewhere("policy", "decide", "--stdin", "--state-dir", f"{tmp_path}/state", stdin=call)
    assert (done.returncode, '"decision": "deny"' in done.stdout) == (2, True), done.stderr
