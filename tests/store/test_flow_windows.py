"""The file of what agents sent lately: shared by workers, outlives them, and fails closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import StoreUnavailableError
from proxy.store.flow_windows import WindowFile

AGENT = "bot \0"


def test_a_window_is_replaced_shared_and_expires(tmp_path: Path) -> None:
    one, other = (WindowFile(tmp_path / "store" / "w.db") for _ in range(2))
    assert one.read(AGENT, 1.0) is None
    one.put(AGENT, b"first\0", 10.0)
    one.put(AGENT, b"second\0", 10.0)
    assert other.read(AGENT, 9.0) == b"second\0"
    assert other.read(AGENT, 10.0) is None
    assert other.read("another", 9.0) is None
    one.close()
    other.close()
    assert WindowFile(tmp_path / "store" / "w.db").read(AGENT, 9.0) == b"second\0"
    assert (tmp_path / "store" / "w.db").stat().st_mode & 0o077 == 0


def test_the_version_tells_of_what_others_write(tmp_path: Path) -> None:
    one, other = (WindowFile(tmp_path / "w.db") for _ in range(2))
    before = one.version()
    one.put(AGENT, b"mine", 10.0)
    assert one.version() == before
    other.put(AGENT, b"theirs", 10.0)
    assert one.version() != before
    after = one.version()
    one.close()
    assert one.version() != after, "another connection counts anew, and must not be taken for the first"


def test_what_has_expired_is_swept(tmp_path: Path) -> None:
    windows = WindowFile(tmp_path / "w.db")
    windows.put(AGENT, b"old", 10.0)
    windows.put("another", b"new", 20.0)
    windows.sweep(10.0)
    assert (windows.read(AGENT, 1.0), windows.read("another", 1.0)) == (None, b"new")


def test_a_file_that_is_none_raises(tmp_path: Path) -> None:
    (tmp_path / "w.db").write_bytes(b"this is no database" * 100)
    windows = WindowFile(tmp_path / "w.db")
    for use in (
        windows.version,
        lambda: windows.read(AGENT, 1.0),
        lambda: windows.put(AGENT, b"x", 1.0),
        lambda: windows.sweep(1.0),
    ):
        with pytest.raises(StoreUnavailableError, match="cannot be known"):
            use()
