"""`interlock setup`."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.commands.conftest import Run, complaint

STDIO = '{"command": "npx", "args": ["-y", "x"]}'
FILES = {
    ".claude.json": f'{{"mcpServers": {{"a": {STDIO}, "far": {{"type": "http", "url": "https://x"}}}},'
    f' "projects": {{"/p": {{"mcpServers": {{"b": {STDIO}}}}}}}}}',
    ".config/Claude/claude_desktop_config.json": f'{{"mcpServers": {{"a": {STDIO}}}}}',
    ".cursor/mcp.json": f'{{"mcpServers": {{"a": {STDIO}, "odd": {{"command": 1}}}}}}',
    ".config/Code/User/mcp.json": f'{{"servers": {{"a": {STDIO}}}, // mine\n}}',
    ".config/Code/User/settings.json": '{"editor.fontSize": 12}',
    ".config/Code - Insiders/User/mcp.json": f'{{"servers": {{"a": {STDIO}}}}}',
    ".codeium/windsurf/mcp_config.json": f'{{"mcpServers": {{"a": {STDIO}}}}}',
    ".gemini/settings.json": f'{{"mcpServers": {{"a": {STDIO}}}}}',
    ".codex/config.toml": '[mcp_servers.a] # mine\ncommand = "npx"\nargs = ["-y", "x"]\n',
    ".continue/config.yaml": "name: me\nmcpServers:\n  - name: a   # mine\n    command: npx\n    args: [-y, x]\n",
    ".continue/mcpServers/one.yaml": "mcpServers:\n  - name: a\n    command: npx\n    args:\n      - -y\n",
    ".config/goose/config.yaml": "extensions:\n  a:\n    type: stdio\n    cmd: npx\n    args:\n    - -y # mine\n",
    ".config/opencode/opencode.json": '{"mcp": {"a": {"type": "local", "command": ["npx", "-y", "x"]}}}',
    ".config/zed/settings.json": f'// Zed\n{{"context_servers": {{"a": {STDIO}, "ext": {{"source": "extension"}}}}}}',
    "project/.mcp.json": f'{{"mcpServers": {{"a": {STDIO}}}}}',
}
UNTOUCHED = ".config/Code/User/settings.json"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: None) -> Path:
    """A home with every client in it, and an interlock on PATH. One of its names means something to glob."""
    home = tmp_path / "h[o]me"
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / ".claude").mkdir()
    program = tmp_path / "bin" / "interlock"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(home / "project")
    return home


def contents(home: Path) -> dict[str, str]:
    return {str(file.relative_to(home)): file.read_text() for file in sorted(home.rglob("*")) if file.is_file()}


def test_a_dry_run_shows_every_change_and_makes_none(home: Path, run: Run) -> None:
    done = run("setup", "--dry-run")
    assert done.returncode == 0
    assert contents(home) == dict(sorted(FILES.items()))
    assert "Dry run: nothing was changed." in done.stderr
    for name in FILES:
        assert (str(home / name) in done.stdout) == (name != UNTOUCHED)
    assert "far: not changed, it is reached by URL, not started: start the client with `interlock exec -- claude`" in (
        done.stderr
    )
    assert "odd: not changed, its command is not a string" in done.stderr


def test_every_client_is_changed_and_restored_byte_for_byte(home: Path, run: Run) -> None:
    done = run("setup", "--yes")
    assert done.returncode == 0, done.stderr
    interlock = str(home.parent / "bin" / "interlock")
    changed = contents(home)
    for name, text in FILES.items():
        assert (changed[name] == text) == (name == UNTOUCHED)
        assert changed[name].count(interlock) == (0 if name == UNTOUCHED else 2 if name == ".claude.json" else 1)
        assert ("mine" in changed[name]) == ("mine" in text)
    front = [interlock, "run", "--server-name", "a", "--", "npx", "-y"]
    codex = tomllib.loads(changed[".codex/config.toml"])["mcp_servers"]["a"]
    assert [codex["command"], *codex["args"]] == [*front, "x"]
    goose = YAML(typ="safe").load(changed[".config/goose/config.yaml"])["extensions"]["a"]
    assert [goose["cmd"], *goose["args"]] == front
    assert json.loads(changed[".config/opencode/opencode.json"])["mcp"]["a"]["command"] == [*front, "x"]
    assert "Nothing to change." in run("setup", "--yes").stderr
    assert contents(home) == changed
    assert run("setup", "--undo", "--yes").returncode == 0
    assert contents(home) == dict(sorted(FILES.items()))
    assert "anything to undo" in run("setup", "--undo", "--yes").stderr


def test_without_a_terminal_nothing_is_changed_unless_asked_for(home: Path, run: Run) -> None:
    done = run("setup")
    assert "Nothing was changed. Run it again with --yes" in done.stderr
    assert contents(home) == dict(sorted(FILES.items()))


def test_an_edit_made_since_survives_undo(home: Path, run: Run) -> None:
    run("setup", "goose", "--yes")
    file = home / ".config/goose/config.yaml"
    file.write_text("GOOSE_MODEL: y\n" + file.read_text())
    run("setup", "goose", "--undo", "--yes")
    assert YAML(typ="safe").load(file.read_text()) == {
        "GOOSE_MODEL": "y",
        "extensions": {"a": {"type": "stdio", "cmd": "npx", "args": ["-y"]}},
    }
    assert "# mine" in file.read_text()


def test_only_the_clients_that_are_named_are_changed(home: Path, run: Run) -> None:
    run("setup", "cursor", "zed", "--yes")
    changed = {name for name, text in contents(home).items() if FILES.get(name, text) != text}
    assert changed == {".cursor/mcp.json", ".config/zed/settings.json"}
    assert "there is no client 'emacs'" in complaint(run("setup", "emacs"))


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_changed(home: Path, run: Run) -> None:
    (home / ".cursor/mcp.json").write_text("{")
    done = run("setup", "--yes")
    assert done.returncode == 1
    assert "it is not JSON" in done.stderr
    assert (home / ".cursor/mcp.json").read_text() == "{"
    assert "interlock" in (home / ".claude.json").read_text()


def test_json_has_a_line_for_each_file(home: Path, run: Run) -> None:
    lines = [json.loads(line) for line in run("setup", "--json", "--dry-run").stdout.splitlines()]
    assert {line["client"] for line in lines} == {
        *("claude-code", "claude-desktop", "cursor", "vscode", "windsurf", "gemini", "codex"),
        *("continue", "goose", "opencode", "zed"),
    }
    assert not any(line["applied"] for line in lines)
    (cursor,) = [line for line in lines if line["client"] == "cursor"]
    assert (cursor["changed"], list(cursor["unchanged"])) == (["a"], ["odd"])
    applied = [json.loads(line) for line in run("setup", "--json", "--yes").stdout.splitlines()]
    assert all(line["applied"] for line in applied)


def test_the_hook_of_claude_code_is_installed_and_taken_out(home: Path, run: Run) -> None:
    settings = home / ".claude" / "settings.json"
    assert run("setup", "claude-code", "--hooks", "--yes").returncode == 0
    (entry,) = json.loads(settings.read_text())["hooks"]["PreToolUse"]
    assert entry["matcher"] == "*"
    command = f"{home.parent}/bin/interlock policy decide --stdin --format claude-code || exit 2"
    assert entry["hooks"][0]["command"] == command
    assert "interlock" in (home / ".claude.json").read_text()
    assert run("setup", "claude-code", "--undo", "--yes").returncode == 0
    assert not settings.exists()
    assert contents(home) == dict(sorted(FILES.items()))
    settings.write_text('{ "model":"x" }\r\n')
    run("setup", "claude-code", "--hooks", "--yes")
    assert "policy decide" in settings.read_text()
    run("setup", "--undo", "--yes")
    assert settings.read_bytes() == b'{ "model":"x" }\r\n'


def test_hooks_are_for_clients_that_are_there(home: Path, run: Run) -> None:
    (home / ".claude").rmdir()
    run("setup", "--hooks", "--yes")
    assert not (home / ".claude").exists()
    assert json.loads((home / ".cursor/hooks.json").read_text())["hooks"]["beforeShellExecution"]


def test_a_machine_without_clients_is_told_so(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home / "empty"))
    monkeypatch.chdir("/")
    assert "No client with MCP servers was found." in run("setup").stderr
