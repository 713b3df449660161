"""The state of each source, without its value."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.vault import SHORTEST
from proxy.vault.placeholder import make
from proxy.vault.source_states import source_states, try_source
from proxy.vault.sources import SourceError
from proxy.vault.vault_file import Entry, EnvSource, FileSource


def test_each_source_is_tried(tmp_path: Path) -> None:
    entries = {
        "a": Entry(placeholder=make("a"), source=EnvSource(variable="A"), added=1.0),
        "b": Entry(placeholder=make("b"), source=FileSource(path=str(tmp_path / "none")), added=1.0),
    }
    states = source_states(entries, {"A": "real-value"})
    assert states["a"] is None
    assert "cannot be read" in (states["b"] or "")
    assert source_states({}, {}) == {}


def test_a_value_that_is_too_short_to_be_found_again_counts_as_none(tmp_path: Path) -> None:
    source = EnvSource(variable="A")
    assert try_source(source, {"A": "x" * SHORTEST}) == SHORTEST
    with pytest.raises(SourceError, match="fewer than"):
        try_source(source, {"A": "x" * (SHORTEST - 1)})
