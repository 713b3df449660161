"""The last checkpoints of a file; tests/commands/audit/test_verify.py reads whole files."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.audit import signed_checkpoints
from proxy.audit.checkpoints import Checkpoint
from proxy.audit.pipeline import checkpoint_file
from proxy.audit.signed_checkpoints import last_checkpoints, valid_checkpoints
from proxy.config import Settings, load_settings
from proxy.errors import ConfigError
from tests.support.audit_fixture import TRAIL, World


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    world = World(tmp_path, None)
    for event in TRAIL:
        world.record(event)
        world.ship()
    return load_settings({"state_dir": tmp_path}).settings


def numbers(settings: Settings) -> list[int]:
    return [one.seq for one in last_checkpoints(settings) if isinstance(one, Checkpoint)]


def test_the_newest_come_first_and_only_the_end_is_read(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert numbers(settings) == [6, 5, 4, 3, 2, 1]
    assert [one.seq for one in valid_checkpoints(settings)] == [1, 2, 3, 4, 5, 6]
    line = len(checkpoint_file(settings).read_bytes()) // 6
    monkeypatch.setattr(signed_checkpoints, "TAIL_BYTES", 2 * line + 5)
    assert numbers(settings) == [6, 5]


def test_a_line_that_is_not_valid_is_told(settings: Settings) -> None:
    file = checkpoint_file(settings)
    file.write_text(file.read_text().replace('"seq": 6', '"seq": 7') + '{"cut')
    found = last_checkpoints(settings)
    assert isinstance(found[0], str)
    assert "signature is wrong" in found[0]
    assert numbers(settings) == [5, 4, 3, 2, 1]


def test_no_file_is_no_checkpoint_and_a_folder_is_an_error(tmp_path: Path) -> None:
    settings = load_settings({"state_dir": tmp_path}).settings
    assert last_checkpoints(settings) == []
    assert valid_checkpoints(settings) == []
    checkpoint_file(settings).mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be read"):
        last_checkpoints(settings)
