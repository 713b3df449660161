"""Several processes make one SQLite file at the same time: none is refused."""

from __future__ import annotations

import contextlib
import multiprocessing
from typing import TYPE_CHECKING

import apsw
import pytest

from proxy.store.wal import use_wal

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
