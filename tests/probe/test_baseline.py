"""What a server was when it was last accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.probe.baseline import FOLDER, ServerBaseline, load, save

KNOWN = ServerBaseline({"a": {"name": "a"}}, {"a": {"net.connect": ["x"]}, "": {}})


def test_what_is_saved_is_found_again(tmp_path: Path) -> None:
    save(tmp_path, "server", KNOWN)
    assert load(tmp_path, "server") == KNOWN
    assert load(tmp_path, "another") is None


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    save(tmp_path, "server", KNOWN)
    (file,) = (tmp_path / FOLDER).iterdir()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tools": 1, "profiles": {}}'])
def test_what_cannot_be_read_is_told_and_never_taken_for_nothing(tmp_path: Path, text: str) -> None:
    save(tmp_path, "server", KNOWN)
    (file,) = (tmp_path / FOLDER).iterdir()
    file.write_text(text)
    with pytest.raises(ConfigError, match="delete it to begin anew"):
        load(tmp_path, "server")
