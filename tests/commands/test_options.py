"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.commands.options import state_folder
from proxy.errors import ConfigError


def test_the_state_folder_is_the_flags_the_environments_or_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERLOCK_STATE_DIR", raising=False)
    config = tmp_path / "c.yaml"
    config.write_text("state_dir: /from/file\n")
    assert state_folder(None, config) == Path("/from/file")
    monkeypatch.setenv("INTERLOCK_STATE_DIR", "/from/environment")
    assert state_folder(None, config) == Path("/from/environment")
    assert state_folder(Path("/from/flag"), config) == Path("/from/flag")


def test_a_wrong_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        state_folder(None, tmp_path / "gone.yaml")
