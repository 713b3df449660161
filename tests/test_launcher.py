"""The `interlock` command says so where another distribution's package `proxy` is in the way.

tests/test_wheel.py starts it where none is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mcp_interlock
from tests.support.harness import REPOSITORY, seed_cache

START = "import sys; from mcp_interlock import main; sys.argv[0] = 'interlock'; main()"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages with Interlock in it, as far as a start looks."""
    folder = tmp_path / "site"
    shutil.copytree(REPOSITORY / "mcp_interlock", folder / "mcp_interlock")
    (folder / "proxy").mkdir()
    shutil.copy(REPOSITORY / "proxy" / "__init__.py", folder / "proxy")
    return folder


def distribution(folder: Path, name: str = "proxy.py", version: str = "2.4.10") -> None:
    """Install a stand-in for another distribution with a package `proxy`, as pip would: over what is there."""
    (folder / "proxy").mkdir(parents=True, exist_ok=True)
    (folder / "proxy" / "__init__.py").write_text('"""Fast proxy."""\nraise SystemExit("it must not be run")\n')
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "RECORD").write_text("proxy/__init__.py,,\n")


def interlock(*words: str, path: list[Path]) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, "-P", "-c", START, *words], capture_output=True, text=True, env=env, check=False, timeout=60
    )


def test_another_one_in_the_same_place_is_named_with_its_path_and_the_way_out(site: Path) -> None:
    distribution(site)
    done = interlock("--version", path=[site])
    assert (done.returncode, done.stdout) == (1, "")
    for part in ("proxy.py 2.4.10", str(site / "proxy"), "uv tool install", "pipx install"):
        assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_one_that_comes_first_on_the_path_is_named(site: Path, tmp_path: Path) -> None:
    distribution(tmp_path / "first")
    done = interlock("--version", path=[tmp_path / "first", site])
    assert done.returncode == 1
    assert "the distribution proxy.py 2.4.10" in done.stderr
    assert str(tmp_path / "first" / "proxy") in done.stderr


def test_a_folder_of_nobodys_is_named(site: Path, tmp_path: Path) -> None:
    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy" / "__init__.py").write_text("")
    done = interlock("--version", path=[tmp_path, site])
    assert done.returncode == 1
    assert f"{tmp_path / 'proxy'} is not Interlock's but another one's" in done.stderr


def test_what_another_ones_removal_left_is_not_complete(site: Path) -> None:
    (site / "proxy" / "__init__.py").unlink()
    done = interlock("--version", path=[site])
    assert done.returncode == 1
    assert f"{site / 'proxy'} is not complete" in done.stderr


def test_a_hook_blocks(site: Path) -> None:
    distribution(site)
    assert interlock("policy", "decide", "--stdin", path=[site]).returncode == 2


@pytest.mark.parametrize(("path", "code", "decision"), [("/etc/shadow", 2, "deny"), ("notes.txt", 0, "allow")])
def test_a_hook_says_all_and_ends_with_its_code(path: str, code: int, decision: str, tmp_path: Path) -> None:
    call = json.dumps({"tool": "read_file", "arguments": {"path": path}})
    seed_cache(tmp_path / "state")
    words = [sys.executable, "-c", START, "policy", "decide", "--stdin", "--state-dir", str(tmp_path / "state")]
    done = subprocess.run(words, input=call, capture_output=True, text=True, check=False, timeout=60, cwd=REPOSITORY)
    assert (done.returncode, json.loads(done.stdout)["decision"]) == (code, decision)


def test_a_hook_that_cannot_read_the_call_blocks(tmp_path: Path) -> None:
    words = [sys.executable, "-c", START, "policy", "decide", "--stdin", "--state-dir", str(tmp_path / "state")]
    done = subprocess.run(words, input="[", capture_output=True, text=True, check=False, timeout=60, cwd=REPOSITORY)
    assert (done.returncode, done.stdout) == (2, "")
    assert "so it is blocked" in done.stderr


@pytest.mark.parametrize("missing", ["proxy.cli", "proxy.errors", "proxy.commands.command_tree"])
def test_a_hook_of_half_an_installation_blocks(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; {START}"
    # Not in the plain form, which needs no command tree.
    words = [sys.executable, "-c", script, "policy", "decide", "--format", "plain", "--stdin"]
    done = subprocess.run(words, input="{}", capture_output=True, text=True, check=False, timeout=60, cwd=REPOSITORY)
    assert (done.returncode, done.stdout) == (2, "")


def test_this_one_is_ours() -> None:
    assert mcp_interlock.shadowed() is None
