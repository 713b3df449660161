"""The local logs of one state folder: one writer a file, and one reader of them all.

The daemon's first worker writes `events.db`, the others `events-2.db` and so on. Each `interlock run` takes a file of
its own, `run-1.db`, `run-2.db` and so on, for as long as it runs; a later run continues the same file. A process that
writes a file holds the lock beside it; what a process left behind, another can take.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import time
from typing import IO, TYPE_CHECKING, Any

import apsw

from proxy.audit import local_log_sql
from proxy.audit.local_log import DIGEST_KEY_BYTES, LOG_FILE, LocalLog, read_log
from proxy.errors import AuditUnavailableError
from proxy.system.secret_files import read_or_make_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from proxy.audit.local_log_sql import LogState

MAX_RUNS = 1000
TAKE_SECONDS = 10.0
PAUSE = 0.05


class HeldLog(LocalLog):
    """A LocalLog whose lock this process holds."""

    def __init__(
        self,
        path: Path,
        held: IO[str],
        state_dir: Path,
        max_bytes: int,
        before: Callable[[Path], object] | None = None,
        *,
        direct: bool = False,
    ) -> None:
        """`before` is called with the path once the lock is held, before the log is opened."""
        self._held = held
        try:
            if before is not None:
                before(path)
            key = read_or_make_key(state_dir / "keys" / "digest.key", DIGEST_KEY_BYTES)
            super().__init__(path, max_bytes=max_bytes, digest_key=key, direct=direct)
        except BaseException:
            self._held.close()
            raise

    def close(self) -> None:
        super().close()
        self._held.close()


class DaemonLog(HeldLog):
    """The log of one worker of the daemon, and of commands that act for it while it does not run."""

    def __init__(
        self,
        state_dir: Path,
        *,
        max_bytes: int = 1 << 30,
        worker: int = 1,
        before: Callable[[Path], object] | None = None,
    ) -> None:
        """Lock the file of a worker. Raises AuditUnavailableError where another process has it."""
        path = worker_log(state_dir, worker)
        super().__init__(path, _wait_for_file(path), state_dir, max_bytes, before)


class RunLog(HeldLog):
    """A LocalLog on the first file that no other run is writing to."""

    def __init__(
        self, state_dir: Path, *, max_bytes: int = 1 << 30, before: Callable[[Path], object] | None = None
    ) -> None:
        """Lock a file. Raises AuditUnavailableError where all are in use."""
        path, held = _take_free_file((state_dir / LOG_FILE).parent)
        super().__init__(path, held, state_dir, max_bytes, before, direct=True)


def worker_log(state_dir: Path, worker: int) -> Path:
    """Return the log file of a worker; workers are numbered from 1."""
    path = state_dir / LOG_FILE
    return path if worker == 1 else path.with_stem(f"{path.stem}-{worker}")


def free_logs(state_dir: Path, count: int, in_use: Collection[int] = ()) -> list[int]:
    """Return the numbers of logs that no worker writes, for as many new workers; `in_use` are another proxy's.

    A proxy that drains, after another took over, keeps its logs until it ends. The others ship what it leaves.
    """
    found: list[int] = []
    number = 0
    while len(found) < count:
        number += 1
        if number in in_use:
            continue
        try:
            held = take_file(worker_log(state_dir, number))
        except OSError:
            found.append(number)  # the worker says what is wrong with it
            continue
        if held is not None:
            held.close()
            found.append(number)
    return found


def take_file(path: Path) -> IO[str] | None:
    """Lock a log; return the lock's file, None where another process has it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A file beside the log: closing one of the log's own would drop SQLite's locks on it.
    held = path.with_suffix(".lock").open("a")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.close()
        return None
    return held


def _wait_for_file(path: Path) -> IO[str]:
    # A shipper of another process may be emptying the file, which takes a moment.
    end = time.monotonic() + TAKE_SECONDS
    try:
        while (held := take_file(path)) is None and time.monotonic() < end:
            time.sleep(PAUSE)
    except OSError as error:
        raise AuditUnavailableError(f"no audit log can be made at {path} ({error.strerror})") from error
    if held is None:
        raise AuditUnavailableError(f"another process keeps the audit log {path}; end it, or give another --state-dir")
    return held


def _take_free_file(folder: Path) -> tuple[Path, IO[str]]:
    try:
        for number in range(1, MAX_RUNS + 1):
            path = folder / f"run-{number}.db"
            if (held := take_file(path)) is not None:
                return path, held
    except OSError as error:
        raise AuditUnavailableError(f"no audit log can be made in {folder} ({error.strerror})") from error
    raise AuditUnavailableError(f"{MAX_RUNS} runs write to {folder} already; end some, or give another --state-dir")


def log_files(state_dir: Path) -> list[Path]:
    return sorted((state_dir / LOG_FILE).parent.glob("*.db"))


def log_bytes(state_dir: Path) -> int:
    """Return the size of the logs on disk, with their journals."""
    total = 0
    for path in (state_dir / LOG_FILE).parent.glob("*.db*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def log_states(state_dir: Path) -> dict[Path, LogState]:
    states = {}
    for path in log_files(state_dir):
        with open_reader(path) as connection:
            state = local_log_sql.read_state(connection)
        if state is not None:
            states[path] = state
    return states


@contextlib.contextmanager
def open_reader(path: Path) -> Iterator[apsw.Connection]:
    """Open a log to read it. Raises AuditUnavailableError where it cannot be read."""
    try:
        with contextlib.closing(local_log_sql.connect_reader(path)) as connection:
            yield connection
    except apsw.Error as error:
        raise AuditUnavailableError(f"{path} cannot be read as an audit log ({error})") from error


def read_logs(state_dir: Path, last: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the events of all logs, or the `last`, by time. Raises AuditUnavailableError where a file is no log."""
    parts = [(event for _, event in read_log(path, last=last)) for path in log_files(state_dir)]
    merged = heapq.merge(*parts, key=lambda event: float(event["time"]))
    return merged if last is None else iter(list(merged)[-last:])
