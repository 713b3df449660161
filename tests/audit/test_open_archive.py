"""An archive needs an extra, and a place that can be used; both are told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from proxy.audit.open_archive import open_folder
from proxy.errors import ConfigError


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "proxy.sinks.parquet_files", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'mcp-interlock\[parquet\]'"):
        open_folder("/tmp")


def test_a_place_that_nobody_knows_is_told(tmp_path: Path) -> None:
    assert open_folder(str(tmp_path)).place == str(tmp_path)
    with pytest.raises(ConfigError, match="gopher://x cannot be used"):
        open_folder("gopher://x")
