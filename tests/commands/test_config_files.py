"""Changes to clients' files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from proxy.agent.client_config import JSON
from proxy.agent.clients import CLAUDE_HOOK
from proxy.commands.config_files import HookRewriter, ServerRewriter, interlock_words, plan, plan_undo

TEXT = '{"mcpServers": {"a": {"command": "x"}}}'
SERVERS, HOOKS = ServerRewriter(JSON), HookRewriter(CLAUDE_HOOK)


def test_a_change_and_its_undoing_leave_the_bytes_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(TEXT.encode() + b"\r\n ")
    change = plan(file, SERVERS, ["/bin/interlock"])
    assert "interlock" in change.difference()
    assert "interlock" not in file.read_text()
    change.apply()
    assert "interlock" in file.read_text()
    plan_undo(file, SERVERS).apply()
    assert file.read_bytes() == TEXT.encode() + b"\r\n "
    assert [each.name for each in tmp_path.iterdir()] == ["mcp.json"]


def test_a_file_that_was_made_is_removed_again_unless_it_was_edited(tmp_path: Path) -> None:
    file = tmp_path / "new" / "settings.json"
    plan(file, HOOKS, ["/bin/interlock"], CLAUDE_HOOK.base).apply()
    assert "PreToolUse" in file.read_text()
    plan_undo(file, HOOKS, CLAUDE_HOOK.base).apply()
    assert not file.exists()
    plan(file, HOOKS, ["/bin/interlock"], CLAUDE_HOOK.base).apply()
    file.write_text(file.read_text().replace("{", '{"model": "x",', 1))
    plan_undo(file, HOOKS, CLAUDE_HOOK.base).apply()
    assert '"model": "x"' in file.read_text()
    assert "interlock" not in file.read_text()


def test_a_backup_that_does_not_belong_to_the_file_is_not_restored(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(TEXT)
    plan(file, SERVERS, ["/bin/interlock"]).apply()
    (tmp_path / "mcp.json.interlock-backup").write_text('{"mcpServers": {"other": {"command": "y"}}}')
    plan_undo(file, SERVERS).apply()
    assert '"a"' in file.read_text()
    assert "interlock" not in file.read_text()


def test_the_command_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "real"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    link = tmp_path / "bin" / "interlock"
    link.parent.mkdir()
    link.symlink_to(program)
    monkeypatch.setattr(sys, "argv", ["-m"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert interlock_words() == [sys.executable, "-m", "proxy.cli"]
    monkeypatch.setenv("PATH", str(link.parent))
    assert interlock_words() == [str(link)]
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/interlock"])
    assert interlock_words() == [str(link)]
