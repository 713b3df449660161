"""What waits in the logs is told."""

from __future__ import annotations

from pathlib import Path

import apsw

from proxy.audit import local_log_sql
from proxy.audit.backlog import Backlog, read_backlog, read_backlog_untouched, stored_version
from proxy.audit.local_log import LOG_FILE
from proxy.audit.local_log_files import DaemonLog, RunLog, open_reader
from tests.support.trail_fixture import START, event, write


def test_a_folder_without_logs_has_none(tmp_path: Path) -> None:
    assert read_backlog(tmp_path, 1.0) == Backlog(0, None, 0, ())


def test_events_of_all_logs_are_counted_and_the_oldest_is_told(tmp_path: Path) -> None:
    write(tmp_path, [5, 6])
    run = RunLog(tmp_path)
    run.record_later(event(1))
    run.close()
    told = read_backlog(tmp_path, START + 11)
    assert (told.events, told.lag_seconds, told.problems) == (3, 10.0, ())
    assert read_backlog(tmp_path, START - 100).lag_seconds == 0.0


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    write(tmp_path, [1, 2])
    with open_reader(tmp_path / LOG_FILE) as connection:
        local_log_sql.note_problem(connection, "the store is down")
    assert read_backlog(tmp_path, START).problems == ("events.db: the store is down",)
    with open_reader(tmp_path / LOG_FILE) as connection:
        local_log_sql.discard(connection, 2, {1: "odd"}, 1.0)
    assert read_backlog(tmp_path, START).rejected == 1
    (tmp_path / LOG_FILE).write_bytes(b"garbage " * 500)
    assert "cannot be read" in read_backlog(tmp_path, START).problems[0]


def test_an_event_that_cannot_be_read_is_as_old_as_can_be(tmp_path: Path) -> None:
    write(tmp_path, [1])
    connection = apsw.Connection(str(tmp_path / LOG_FILE))
    connection.execute("UPDATE events SET body = 'nonsense'")
    connection.close()
    assert read_backlog(tmp_path, 50.0).lag_seconds == 50.0


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm")
    }


async def test_a_look_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, [1, 2])
    before = tree(tmp_path)
    found = read_backlog_untouched(tmp_path, START + 11)
    assert (found.events, found.lag_seconds, found.problems) == (2, 10.0, ())
    assert tree(tmp_path) == before
    log = DaemonLog(tmp_path)
    await log.record(event(3))
    before = tree(tmp_path)
    assert read_backlog_untouched(tmp_path, START + 11).events == 3
    assert tree(tmp_path) == before
    log.close()
    assert stored_version(tmp_path / "none.db") is None
    assert not (tmp_path / "none.db").exists()
