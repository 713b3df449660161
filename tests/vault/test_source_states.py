"""The state of each source, without its value."""

from __future__ import annotations

from pathlib import Path

from proxy.vault.placeholder import make
from proxy.vault.source_states import source_states, standing_problems
from proxy.vault.vault_file import Entry, EnvSource, FileSource, VaultFile


def test_each_source_is_tried(tmp_path: Path) -> None:
    entries = {
        "a": Entry(placeholder=make("a"), source=EnvSource(variable="A"), added=1.0),
        "b": Entry(placeholder=make("b"), source=FileSource(path=str(tmp_path / "none")), added=1.0),
    }
    states = source_states(entries, {"A": "real-value"})
    assert states["a"] is None
    assert "cannot be read" in (states["b"] or "")
    assert source_states({}, {}) == {}


def test_what_shows_without_running_anything(tmp_path: Path) -> None:
    file = VaultFile(tmp_path)
    assert standing_problems(tmp_path, {}) == {}
    file.add("a", Entry(placeholder=make("a"), source=FileSource(path=str(tmp_path / "none")), added=1.0))
    file.add("b", Entry(placeholder=make("b"), source=EnvSource(variable="A"), added=1.0))
    assert list(standing_problems(tmp_path, {})) == ["a"]
    file.path.write_text("{")
    assert "is damaged" in standing_problems(tmp_path, {})["*"]
