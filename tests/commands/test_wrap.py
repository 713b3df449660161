"""`interlock wrap`."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.agent.test_client_config import CLAUDE, WRAPPED
from tests.commands.conftest import Run, complaint


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A client's configuration, and an interlock on PATH."""
    program = tmp_path / "bin" / "interlock"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    file = tmp_path / "mcp.json"
    file.write_text(CLAUDE)
    file.chmod(0o640)
    return file


def wrapped(file: Path) -> str:
    """The configuration as it should be: the command is absolute, since desktops start clients without our PATH."""
    return WRAPPED.replace('"interlock"', json.dumps(str(file.parent / "bin" / "interlock")))


def backup(file: Path) -> Path:
    return file.with_name("mcp.json.interlock-backup")


def test_it_wraps_tells_what_it_did_and_keeps_a_backup(file: Path, run: Run) -> None:
    done = run("wrap", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    assert "files: wrapped" in done.stderr
    assert "remote: not changed" in done.stderr
    assert file.read_text() == wrapped(file)
    assert backup(file).read_text() == CLAUDE
    assert {stat.S_IMODE(each.stat().st_mode) for each in (file, backup(file))} == {0o640}
    assert sorted(each.name for each in file.parent.glob(".mcp*")) == []


def test_it_is_undone_byte_for_byte(file: Path, run: Run) -> None:
    original = CLAUDE.replace("\n", "\r\n").encode() + b"  \n"
    file.write_bytes(original)
    run("wrap", str(file))
    assert file.read_bytes() != original
    assert run("wrap", str(file), "--undo").returncode == 0
    assert file.read_bytes() == original
    assert not backup(file).exists()


def test_twice_is_once(file: Path, run: Run) -> None:
    run("wrap", str(file))
    done = run("wrap", str(file))
    assert "files: not changed, it is already wrapped" in done.stderr
    assert file.read_text() == wrapped(file)
    run("wrap", str(file), "--undo")
    assert file.read_text() == CLAUDE


def test_an_edit_made_since_survives_undo(file: Path, run: Run) -> None:
    run("wrap", str(file))
    file.write_text(file.read_text().replace('"other":', '"mine": true,\n    "other":'))
    assert "files: unwrapped" in run("wrap", str(file), "--undo").stderr
    value = json.loads(file.read_text())
    assert value["mine"] is True
    assert value["mcpServers"]["time"] == {"command": "uvx", "args": ["mcp-server-time"]}
    assert not backup(file).exists()


def test_a_server_added_since_is_wrapped_and_survives_undo(file: Path, run: Run) -> None:
    run("wrap", str(file))
    added = '"new": {"command": "x", "args": []},\n        "time"'
    file.write_text(file.read_text().replace('"time"', added, 1))
    assert "new: wrapped" in run("wrap", str(file)).stderr
    assert "interlock" not in backup(file).read_text()
    run("wrap", str(file), "--undo")
    assert json.loads(file.read_text())["mcpServers"]["new"] == {"command": "x", "args": []}
    assert "interlock" not in file.read_text()


def test_undo_without_anything_to_undo_says_so(file: Path, run: Run) -> None:
    assert "No server in this file is wrapped" in run("wrap", str(file), "--undo").stderr
    assert file.read_text() == CLAUDE


def test_a_dry_run_prints_the_difference_and_changes_nothing(file: Path, run: Run) -> None:
    done = run("wrap", str(file), "--dry-run")
    assert '-            "command": "npx",' in done.stdout
    assert '/bin/interlock",\n' in done.stdout
    assert "files: would be wrapped" in done.stderr
    assert "nothing was changed" in done.stderr
    assert "Restart" not in done.stderr
    assert file.read_text() == CLAUDE
    assert not backup(file).exists()


def test_a_link_stays_a_link(file: Path, run: Run, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(file)
    run("wrap", str(link))
    assert link.is_symlink()
    assert file.read_text() == wrapped(file)


def test_mode_and_owner_stay_and_a_file_that_may_not_be_written_is_left(
    file: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(file, 65534, 65534)
    before = file.stat()
    run("wrap", str(file))
    for path in (file, backup(file)):
        after = path.stat()
        assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    run("wrap", str(file), "--undo")
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    assert "cannot write" in complaint(run("wrap", str(file)))
    assert file.read_text() == CLAUDE
    assert not backup(file).exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"{", "not JSON: line 1"), (b"{}", "no MCP servers"), (b"\xff", "not UTF-8"), (None, "mcp.json")],
)
def test_a_file_that_cannot_be_used_is_named_and_left(content: bytes | None, said: str, file: Path, run: Run) -> None:
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    told = complaint(run("wrap", str(file)))
    assert said in told
    assert "mcp.json" in told
    assert content is None or file.read_bytes() == content


def test_without_interlock_on_the_path_it_is_named_in_full(
    file: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    run("wrap", str(file))
    command = json.loads(file.read_text())["mcpServers"]["time"]
    assert Path(command["command"]).is_absolute()
    run("wrap", str(file), "--undo")
    assert file.read_text() == CLAUDE


def test_one_odd_server_is_named_and_the_others_are_wrapped(file: Path, run: Run) -> None:
    file.write_text(CLAUDE.replace('"command": "uvx"', '"command": 1'))
    done = run("wrap", str(file))
    assert done.returncode == 0
    assert "time: not changed, its command is not a string" in done.stderr
    assert "files: wrapped" in done.stderr
    run("wrap", str(file), "--undo")
    assert file.read_text() == CLAUDE.replace('"command": "uvx"', '"command": 1')


def test_json_says_what_was_done(file: Path, run: Run) -> None:
    shown = json.loads(run("wrap", str(file), "--dry-run", "--json").stdout)
    assert shown["changed"] == ["files", "time", "bare"]
    assert shown["applied"] is False
    assert "exec" in shown["unchanged"]["remote"]
    assert json.loads(run("wrap", str(file), "--json").stdout)["applied"] is True
    assert json.loads(run("wrap", str(file), "--undo", "--json").stdout)["applied"] is True
    assert file.read_text() == CLAUDE


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.toml", '[mcp_servers.a]\ncommand = "x" # y\nargs = ["z"]\n'),
        ("config.yaml", "extensions:\n  a:\n    cmd: x  # y\n    args:\n    - z\n"),
        ("opencode.jsonc", '{"mcp": {"a": {"type": "local", "command": ["x", "z"]}}} // y\n'),
    ],
)
def test_other_formats_are_known_by_the_name_of_the_file(name: str, text: str, file: Path, run: Run) -> None:
    other = file.with_name(name)
    other.write_text(text)
    assert "a: wrapped" in run("wrap", str(other)).stderr
    assert "--server-name" in other.read_text()
    run("wrap", str(other), "--undo")
    assert other.read_text() == text


def test_a_file_wrapped_by_another_installation_is_restored_exactly(file: Path, run: Run) -> None:
    run("wrap", str(file))
    elsewhere = str(file.parent / "bin" / "interlock")
    file.write_text(file.read_text().replace(elsewhere, "/opt/venv/bin/interlock"))
    run("wrap", str(file), "--undo")
    assert file.read_text() == CLAUDE
