"""The audit logs of one state folder: one writer a file, and one reading of them all.

The daemon writes `events.db`. Each `interlock run` takes a file of its own, `run-1.db`,
`run-2.db` and so on, for as long as it runs; a later one goes on in the same file.
"""

from __future__ import annotations

import fcntl
import heapq
from typing import IO, TYPE_CHECKING, Any

from proxy.errors import AuditUnavailableError
from proxy.store.log import LOG_FILE, LocalLog, read_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_RUNS = 1000


class RunLog(LocalLog):
    """A LocalLog on the first file that no other run is writing to."""

    def __init__(self, state_dir: Path, *, max_bytes: int = 1 << 30) -> None:
        """Take a file. Raises AuditUnavailableError where there is none to have."""
        self.path, self._held = _take_file((state_dir / LOG_FILE).parent)
        try:
            super().__init__(self.path, max_bytes=max_bytes)
        except BaseException:
            self._held.close()
            raise

    def close(self) -> None:
        """Write what is queued, and leave the file to the next run."""
        super().close()
        self._held.close()


def _take_file(folder: Path) -> tuple[Path, IO[str]]:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(1, MAX_RUNS + 1):
            # A file beside the log: closing one of the log's own would drop SQLite's locks on it.
            held = (folder / f"run-{number}.lock").open("a")
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.close()
            else:
                return folder / f"run-{number}.db", held
    except OSError as error:
        raise AuditUnavailableError(f"no audit log can be made in {folder} ({error.strerror})") from error
    raise AuditUnavailableError(f"{MAX_RUNS} runs write to {folder} already; end some, or give another --state-dir")


def log_files(state_dir: Path) -> list[Path]:
    """Give the logs there are."""
    return sorted((state_dir / LOG_FILE).parent.glob("*.db"))


def read_logs(state_dir: Path, last: int | None = None) -> Iterator[dict[str, Any]]:
    """Give the events of all logs in the order of their times, oldest first; or the `last` ones.

    Raises AuditUnavailableError where a file is no log.
    """
    parts = [(event for _, event in read_log(path, last=last)) for path in log_files(state_dir)]
    merged = heapq.merge(*parts, key=_when)
    return merged if last is None else iter(list(merged)[-last:])


def _when(event: dict[str, Any]) -> float:
    return float(event["time"])
