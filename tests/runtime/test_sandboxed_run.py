"""Which sandbox a server gets; `tests/commands/test_run_sandbox.py` runs servers in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from proxy.errors import ConfigError
from proxy.policy.load import load_policy
from proxy.runtime.sandboxed_run import choose_sandbox, presets_for

if TYPE_CHECKING:
    from proxy.policy.decide import CompiledPolicy


@pytest.mark.parametrize(
    ("command", "presets"),
    [
        (["npx", "-y", "@modelcontextprotocol/server-filesystem"], ("node",)),
        (["/usr/bin/node", "x.js"], ("node",)),
        (["uvx", "mcp-server-git"], ("python", "git")),
        (["/venv/bin/python3.12", "-m", "x"], ("python",)),
        (["npx", "@playwright/mcp"], ("node", "browser")),
        (["./server"], ()),
    ],
)
def test_presets_fit_the_command(command: list[str], presets: tuple[str, ...]):
    assert presets_for(command) == presets


def make(tmp_path: Path, section: str = "") -> CompiledPolicy:
    (tmp_path / "p.yaml").write_text(f"version: 1\ndefault: allow\n{section}")
    return load_policy(tmp_path / "p.yaml")


def test_without_a_word_there_is_no_sandbox(tmp_path: Path):
    assert choose_sandbox(None, make(tmp_path), "files", ["node"]) is None


def test_the_flag_chooses_a_profile(tmp_path: Path):
    policy = make(tmp_path)
    auto = choose_sandbox("auto", policy, "files", ["npx", "x"])
    assert auto is not None
    assert (auto.name, auto.require, auto.profile.hosts) == ("node", False, ())
    assert "$ROOTS" in auto.profile.write
    named = choose_sandbox("require:git", policy, "files", ["x"])
    assert named is not None
    assert (named.name, named.require) == ("git", True)
    with pytest.raises(ConfigError, match="there is no sandbox profile 'nodes'"):
        choose_sandbox("nodes", policy, "files", ["x"])


def test_a_home_or_a_folder_of_many_is_not_read_because_a_server_is_started_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    policy, home = make(tmp_path), tmp_path / "home"
    (home / "work").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for folder, read in ((home, False), (home.parent, False), (Path("/"), False), (home / "work", True)):
        monkeypatch.chdir(folder)
        chosen = choose_sandbox("auto", policy, "files", ["x"])
        assert chosen is not None
        assert ("$CWD" in chosen.profile.read) == read, folder


def test_the_policy_counts_before_the_flag(tmp_path: Path):
    policy = make(tmp_path, "sandbox:\n  files: {read: [/srv], mode: shadow}\n")
    by_policy = choose_sandbox("require", policy, "files", ["npx"])
    assert by_policy is not None
    assert (by_policy.name, by_policy.require, by_policy.profile.enforced) == ("policy", True, False)
    assert choose_sandbox(None, policy, "other", ["npx"]) is None
    with pytest.raises(ConfigError, match="the policy has a sandbox for 'files'"):
        choose_sandbox("node", policy, "files", ["npx"])
