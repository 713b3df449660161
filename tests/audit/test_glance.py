"""Looking at files touches none of them, whether somebody writes to them or nobody does."""

from __future__ import annotations

from pathlib import Path

from proxy.audit.glance import read_backlog_untouched, stored_version
from proxy.audit.local_log_files import DaemonLog
from tests.support.trail_fixture import START, event, write


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
