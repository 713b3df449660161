"""Where a probe plays."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.probe.workspace import Workspace


def test_what_arguments_point_at_is_there_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stage = Workspace()
    samples = stage.samples()
    assert all(Path(path).exists() for path in (samples.file, samples.other_file, samples.folder, samples.repository))
    assert not Path(samples.new_file).exists()
    assert stage.context().canaries[samples.file].secret is False
    stage.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_word_may_ask_for_the_homes_folders() -> None:
    stage = Workspace()
    try:
        assert stage.fill_in("--dir={documents}/x") == f"--dir={stage.home.documents}/x"
        assert stage.fill_in("{other}") == "{other}"
    finally:
        stage.remove()
