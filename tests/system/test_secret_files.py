"""Small files with secrets in them."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.audit.local_log import open_log
from proxy.errors import AuditUnavailableError, ConfigError, StoreUnavailableError
from proxy.store.sqlite import SqliteDatabase
from proxy.system.secret_files import (
    FileCache,
    FolderLock,
    SealedCache,
    make_private,
    read_or_make_key,
    read_private,
    room_hint,
    write_private,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("write", [write_private, make_private])
def test_a_file_is_its_owners_alone_and_leaves_nothing_beside_it(write: object, tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    before = os.umask(0)
    try:
        write(path, b"x")  # type: ignore[operator]
    finally:
        os.umask(before)
    assert (path.read_bytes(), mode(path), mode(path.parent)) == (b"x", 0o600, 0o700)
    assert list(path.parent.iterdir()) == [path]


def test_writing_replaces_and_making_does_not(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_private(path, b"1")
    make_private(path, b"2")
    assert path.read_bytes() == b"1"
    write_private(path, b"3")
    assert path.read_bytes() == b"3"


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    write_private(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (write_private, make_private):
        with pytest.raises(OSError, match="No space"):
            write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_is_made_once_and_read_after(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "k"
    key = read_or_make_key(path, 32)
    assert len(key) == 32
    assert mode(path) == 0o600
    assert read_or_make_key(path, 32) == key
    assert read_or_make_key(tmp_path / "other", 32) != key


def test_processes_that_come_first_at_once_agree_on_one_key(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "k"
    code = (
        "import sys; from pathlib import Path; from proxy.system.secret_files import read_or_make_key; "
        "sys.stdin.read(); print(read_or_make_key(Path(sys.argv[1]), 32).hex())"
    )
    racers = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.close()
        racer.stdin = None
    keys = {racer.communicate(timeout=30)[0] for racer in racers}
    assert len(keys) == 1
    assert bytes.fromhex(keys.pop().decode()) == path.read_bytes()


def test_the_second_of_two_makers_takes_the_firsts_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k"
    path.write_bytes(b"f" * 32)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    assert read_or_make_key(path, 32) == b"f" * 32


def test_a_key_of_another_size_is_named_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_bytes(b"short")
    with pytest.raises(ConfigError, match=r"k has 5 bytes, not 32; restore it, or delete it"):
        read_or_make_key(path, 32)


def test_a_cache_gives_back_what_was_put_and_nothing_else(tmp_path):
    cache = FileCache(tmp_path / "cache")
    assert cache.get("a") is None
    cache.put("a", b"one")
    cache.put("a", b"two")
    assert (cache.get("a"), cache.get("b")) == (b"two", None)


def test_a_cache_keeps_the_newest(tmp_path):
    cache = FileCache(tmp_path / "cache", limit=2)
    for number in range(3):
        cache.put(str(number), b"x")
        os.utime(tmp_path / "cache" / str(number), (number, number))
    cache.put("3", b"x")
    assert [cache.get(str(number)) for number in range(4)] == [None, None, b"x", b"x"]


def test_a_cache_that_cannot_be_written_is_an_empty_one(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = FileCache(tmp_path / "file")
    cache.put("a", b"one")
    assert cache.get("a") is None


def test_a_folder_is_held_by_one_at_a_time(tmp_path):
    first = FolderLock(tmp_path / "state")
    with pytest.raises(ConfigError, match="--state-dir"):
        FolderLock(tmp_path / "state")
    first.release()
    FolderLock(tmp_path / "state").release()


def test_a_secret_is_read_from_a_file_of_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "a secret"
    write_private(path, b"x")
    assert read_private(path) == b"x"
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=r"\(mode 0640\); run: chmod 600 '.*a secret'"):
        read_private(path)


def test_an_error_about_a_file_says_where_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert room_hint(tmp_path / "new" / "file") == ""
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(1 << 30, 1 << 30, 4096))  # type: ignore[attr-defined]
    assert room_hint(tmp_path / "new" / "file") == f"; the disk is full (4 KiB left): free space in {tmp_path}"
    with pytest.raises(AuditUnavailableError, match=r"the disk is full \(4 KiB left\)"):
        open_log(tmp_path, 1 << 20)
    with pytest.raises(StoreUnavailableError, match=r"the disk is full \(4 KiB left\)"):
        asyncio.run(SqliteDatabase(tmp_path).check())


def test_a_sealed_entry_counts_only_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = SealedCache(folder, b"k" * 32)
    assert cache.get("a") is None
    cache.put("a", b"data")
    assert cache.get("a") == b"data"
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o600
    sealed = (folder / "a").read_bytes()
    (folder / "b").write_bytes(sealed)
    assert cache.get("b") is None, "another's entry under this name"
    assert SealedCache(folder, b"other" * 8).get("a") is None, "an entry of another key"
    for damaged in (b"", b"data", sealed[:-1], sealed + b"x", sealed[:-1] + b"b", bytes([sealed[0] ^ 1]) + sealed[1:]):
        (folder / "a").write_bytes(damaged)
        assert cache.get("a") is None, damaged
