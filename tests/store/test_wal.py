"""Several processes make one SQLite file at the same time: none is refused."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import threading
from typing import TYPE_CHECKING

import apsw
import pytest

from proxy.store.wal import ROUND_BYTES, USED, LongWal, lengthen_wal, use_wal

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

PROCESSES = 4
FILES = 60


def switch_all(folder: Path, together: Barrier) -> None:
    for number in range(FILES):
        together.wait(timeout=60)
        with contextlib.closing(apsw.Connection(str(folder / f"{number}.db"))) as connection:
            connection.set_busy_timeout(2_000)
            use_wal(connection, 2.0)
            connection.execute("CREATE TABLE IF NOT EXISTS seen (number INTEGER)")
            connection.execute("INSERT INTO seen VALUES (1)")


def test_all_who_switch_a_new_file_at_once_get_there(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    together = fork.Barrier(PROCESSES)
    processes = [fork.Process(target=switch_all, args=(tmp_path, together)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    for number in range(FILES):
        with contextlib.closing(apsw.Connection(str(tmp_path / f"{number}.db"))) as connection:
            assert connection.execute("SELECT count(*) FROM seen").fetchall() == [(PROCESSES,)]


def test_a_file_that_stays_locked_is_told_in_the_end(tmp_path: Path) -> None:
    path = str(tmp_path / "held.db")
    with contextlib.closing(apsw.Connection(path)) as holder, contextlib.closing(apsw.Connection(path)) as other:
        holder.execute("CREATE TABLE seen (number INTEGER)")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(apsw.BusyError):
            use_wal(other, 0.05)


def counting(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    use_wal(connection, 2.0)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS seen (number INTEGER PRIMARY KEY, text TEXT)")
    return connection


def count_to(connection: apsw.Connection, last: int) -> None:
    for number in range(last):
        connection.execute("INSERT INTO seen VALUES (?, ?)", (number, "x" * 3_000))


def numbers(path: Path) -> list[int]:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        return [row[0] for row in connection.execute("SELECT number FROM seen ORDER BY number")]


def wal_bytes(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


def test_a_wal_that_is_made_long_while_commits_go_on_loses_none_of_them(tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    with contextlib.closing(counting(path)) as connection:
        lengthening = threading.Thread(target=lengthen_wal, args=(path,))
        lengthening.start()
        count_to(connection, 300)
        lengthening.join()
        assert wal_bytes(path) >= ROUND_BYTES
        # What a crash now would leave: the WAL is the only place of most of it.
        crashed = tmp_path / "crashed.db"
        for end in ("", "-wal"):
            shutil.copyfile(f"{path}{end}", f"{crashed}{end}")
        assert numbers(path) == numbers(crashed) == list(range(300))


def test_commits_write_over_the_zeros_and_make_the_file_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "long.db"
    with contextlib.closing(counting(path)) as connection:
        lengthen_wal(path)
        before = wal_bytes(path)
        count_to(connection, 200)
        assert wal_bytes(path) == before


def test_no_wal_is_made_where_sqlite_has_none(tmp_path: Path) -> None:
    lengthen_wal(tmp_path / "closed.db")
    assert os.listdir(tmp_path) == []  # noqa: PTH208


def test_the_wal_is_made_long_once_a_process_has_committed_some_times(tmp_path: Path) -> None:
    path = tmp_path / "used.db"
    with contextlib.closing(counting(path)):
        wal = LongWal(path)
        for _ in range(USED - 1):
            wal.committed()
        assert not named_threads()
        assert wal_bytes(path) < ROUND_BYTES
        wal.committed()
        for thread in named_threads():
            thread.join()
        assert wal_bytes(path) >= ROUND_BYTES


def named_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "wal-length"]
