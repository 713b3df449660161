"""The logs of one state folder: a file for each writer, one reading of them all."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxy.audit import local_log_files as module
from proxy.audit.local_log import LOG_FILE, LocalLog
from proxy.audit.local_log_files import DaemonLog, RunLog, log_bytes, log_files, read_logs
from proxy.core.model import AuditEvent
from proxy.errors import AuditUnavailableError

type Open = Callable[[], RunLog]


@pytest.fixture
def open_run(tmp_path: Path) -> Iterator[Open]:
    opened: list[RunLog] = []

    def run() -> RunLog:
        opened.append(RunLog(tmp_path))
        return opened[-1]

    yield run
    for log in opened:
        log.close()


def write(log: LocalLog, *times: float) -> None:
    for time in times:
        log.record_later(AuditEvent(event_id=str(time), kind="decided", time=time))


def times(state_dir: Path, last: int | None = None) -> list[float]:
    return [event["time"] for event in read_logs(state_dir, last)]


def test_runs_at_the_same_time_have_a_file_each(open_run: Open, tmp_path: Path) -> None:
    assert [open_run().path.name for _ in range(3)] == ["run-1.db", "run-2.db", "run-3.db"]
    assert [path.name for path in log_files(tmp_path)] == ["run-1.db", "run-2.db", "run-3.db"]


def test_a_file_that_was_left_is_gone_on_with(open_run: Open, tmp_path: Path) -> None:
    first, second = open_run(), open_run()
    write(first, 1.0)
    first.close()
    third = open_run()
    assert third.path == first.path
    write(third, 2.0)
    third.close()
    second.close()
    assert times(tmp_path) == [1.0, 2.0]


HOLDER = """
import sys, time
from pathlib import Path
from proxy.audit.local_log_files import RunLog
log = RunLog(Path(sys.argv[1]))
print(log.path.name, flush=True)
time.sleep(60)
"""


def test_a_run_in_another_process_keeps_its_file_until_it_is_killed(open_run: Open, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "run-1.db\n"
        assert open_run().path.name == "run-2.db"
        holder.send_signal(signal.SIGKILL)
    assert open_run().path.name == "run-1.db"


def test_events_of_all_files_come_in_the_order_of_their_times(open_run: Open, tmp_path: Path) -> None:
    logs = [LocalLog(tmp_path / LOG_FILE), open_run(), open_run()]
    for log, when in zip(logs, [(1.0, 4.0, 7.0), (2.0, 5.0), (3.0, 6.0, 8.0)], strict=True):
        write(log, *when)
        log.close()
    assert times(tmp_path) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert times(tmp_path, last=3) == [6.0, 7.0, 8.0]
    assert times(tmp_path, last=100) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def test_a_file_that_is_just_being_made_has_no_events(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "run-1.db").touch()
    assert times(tmp_path) == []


def test_a_file_that_is_no_log_is_told(open_run: Open, tmp_path: Path) -> None:
    open_run()
    (tmp_path / "log" / "run-2.db").write_bytes(b"garbage " * 500)
    with pytest.raises(AuditUnavailableError, match=r"run-2\.db"):
        times(tmp_path)


def test_no_file_to_have_is_told_with_the_way_out(
    open_run: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_RUNS", 1)
    open_run()
    with pytest.raises(AuditUnavailableError, match="--state-dir"):
        open_run()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")
    with pytest.raises(AuditUnavailableError, match="no audit log can be made"):
        RunLog(tmp_path)


def test_a_log_that_cannot_be_opened_lets_its_slot_go(open_run: Open, tmp_path: Path) -> None:
    (tmp_path / "log" / "run-1.db").mkdir(parents=True)
    with pytest.raises(AuditUnavailableError, match=r"run-1\.db"):
        open_run()
    (tmp_path / "log" / "run-1.db").rmdir()
    assert open_run().path.name == "run-1.db"


def test_workers_have_a_file_each_and_one_that_comes_later_goes_on_in_it(tmp_path: Path) -> None:
    first, second = DaemonLog(tmp_path), DaemonLog(tmp_path, worker=2)
    writer = second.head.writer
    assert [path.name for path in log_files(tmp_path)] == ["events-2.db", "events.db"]
    assert log_bytes(tmp_path) > 0
    first.close()
    second.close()
    again = DaemonLog(tmp_path, worker=2)
    assert again.head.writer == writer
    again.close()
