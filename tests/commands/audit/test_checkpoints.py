"""Reading what was signed, for commands: the settings' file and keys, or those that are given."""

from __future__ import annotations

import shutil
from pathlib import Path

from proxy.commands.audit.checkpoints import read_checkpoints
from proxy.config import load_settings
from tests.support.trail_fixture import sign, write


def test_the_file_and_keys_are_those_of_the_settings_or_those_given(tmp_path: Path) -> None:
    head = write(tmp_path / "state", [1, 2])
    sign(tmp_path / "state")
    settings = load_settings({"state_dir": tmp_path / "state"}).settings
    signed, broken = read_checkpoints(settings)
    assert (list(signed), signed[head.writer].last, broken) == ([head.writer], 2, [])
    empty = load_settings({"state_dir": tmp_path / "other"}).settings
    assert read_checkpoints(empty) == ({}, [])
    vault = tmp_path / "vault"
    vault.mkdir()
    kept = Path(shutil.copy(tmp_path / "state" / "checkpoints" / "checkpoints.jsonl", vault))
    (key,) = (tmp_path / "state" / "keys" / "audit-public").glob("*.pem")
    assert read_checkpoints(empty, [kept], [key]) == (signed, [])
    assert read_checkpoints(empty, [kept], [key], until=1.0) == ({}, [])
    with kept.open("a") as file:
        file.write("{}\n")
    assert len(read_checkpoints(empty, [kept], [key])[1]) == 1
