"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.commands.options import state_folder, store_settings
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


def test_the_store_is_where_flag_environment_or_file_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_DATABASE_URL", raising=False)
    config = tmp_path / "c.yaml"
    config.write_text("state_dir: /from/file\n")
    assert store_settings(None, None, config).postgres is None
    assert store_settings(None, None, config).state_dir == Path("/from/file")
    monkeypatch.setenv("INTERLOCK_DATABASE_URL", "postgresql://u:p@environment/d")
    assert store_settings(None, None, config).postgres == "postgresql://u:p@environment/d"
    assert store_settings("postgresql://flag/d", None, config).postgres == "postgresql://flag/d"


def test_a_wrong_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        state_folder(None, tmp_path / "gone.yaml")
