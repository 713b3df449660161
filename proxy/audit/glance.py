"""Looking at SQLite files without touching them: nothing is made, moved from a journal, or locked for long."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import quote

import apsw

from proxy.audit import local_log_sql
from proxy.audit.backlog import Backlog, sum_up
from proxy.audit.local_log_files import log_files
from proxy.errors import AuditUnavailableError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from proxy.audit.local_log_sql import LogState

_FLAGS = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
BUSY_MS = 2_000


@contextlib.contextmanager
def untouched(path: Path) -> Iterator[apsw.Connection]:
    """Open a file to look at it. Raises apsw.Error."""
    recorder = path.with_name(f"{path.name}-wal")
    # Without a journal there is nobody else, and nothing that is not in the file itself.
    alone = not recorder.exists() or recorder.stat().st_size == 0
    uri = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if alone else ''}"
    connection = apsw.Connection(uri, flags=_FLAGS)
    try:
        connection.set_busy_timeout(BUSY_MS)
        yield connection
    finally:
        connection.close()


def read_backlog_untouched(state_dir: Path, now: float) -> Backlog:
    """Look into the logs of a state folder; one that cannot be read is a problem to tell."""
    states: dict[Path, LogState] = {}
    problems: list[str] = []
    for path in log_files(state_dir):
        try:
            with untouched(path) as connection:
                state = local_log_sql.read_state(connection)
        except (apsw.Error, OSError, AuditUnavailableError) as error:
            problems.append(f"{path} cannot be read as an audit log ({error})")
            continue
        if state is not None:
            states[path] = state
    return sum_up(states, now, problems)


def stored_version(path: Path) -> int | None:
    """Return how many migrations a store's file has; None where there is none. Raises StoreUnavailableError."""
    if not path.exists():
        return None
    try:
        with untouched(path) as connection:
            return int(connection.pragma("user_version"))
    except (apsw.Error, OSError) as error:
        raise StoreUnavailableError(f"{path} cannot be read as a store ({error})") from error
