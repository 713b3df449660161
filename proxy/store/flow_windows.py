"""The ends of what agents sent lately, among the workers of one machine: a SQLite file of its own.

A call waits for nothing but the file's lock, and for no disk: what was sent outlives the processes, `kill -9` included.
A power cut may forget the last of it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import apsw

from proxy.errors import StoreUnavailableError
from proxy.store.packed_text import pack
from proxy.store.queries import Queries
from proxy.store.sqlite import numbered
from proxy.store.wal import use_wal
from proxy.system.package_data import sql_dir
from proxy.system.secret_files import room_hint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SQL: Final = Queries("flows")
WINDOWS_FILE: Final = "store/flow_windows.db"  # below the state folder
BUSY_MS: Final = 2_000
# About every thousandth call copies the log; `sweep` does it beside the calls.
CHECKPOINT_PAGES: Final = 4_000


class WindowFile:
    """Windows of agents; every method raises StoreUnavailableError. Use it from one thread, `sweep` from any."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: apsw.Connection | None = None
        self._opened = 0

    def version(self) -> tuple[int, int]:
        """Return what changes whenever another connection has written."""
        ((version,),) = self._run("PRAGMA data_version")
        return self._opened, version

    def read(self, agent: str, now: float) -> bytes | None:
        """Return the window of an agent, if it has one."""
        rows = self._run(numbered(SQL["read_window"]), pack(agent), now)
        return bytes(rows[0][0]) if rows else None

    def put(self, agent: str, window: bytes, expires_at: float) -> None:
        """Put a window in the place of the one before."""
        self._run(numbered(SQL["put_window"]), pack(agent), window, expires_at)

    def sweep(self, now: float) -> None:
        """Delete what has expired, and write the rest to the disk."""
        try:
            with contextlib.closing(self._connect()) as connection:
                connection.execute(numbered(SQL["delete_old_windows"]), (now,)).fetchall()
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except (apsw.Error, OSError) as error:
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Release the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _run(self, sql: str, *values: Any) -> Sequence[Any]:
        try:
            if self._connection is None:
                self._connection = self._connect()
                self._opened += 1
            return self._connection.execute(sql, values).fetchall()
        except (apsw.Error, OSError) as error:
            raise self._unavailable(error) from error

    def _connect(self) -> apsw.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.touch(mode=0o600)
        connection = apsw.Connection(str(self.path))
        connection.set_busy_timeout(BUSY_MS)
        use_wal(connection, BUSY_MS / 1000)
        # A commit is in the kernel's hands, and the file is whole whatever happens (see `SqliteLimits`).
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        connection.execute((sql_dir() / "flow_windows.sql").read_text())
        return connection

    def _unavailable(self, error: Exception) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"what agents sent lately cannot be known ({self.path}: {error}){room_hint(self.path)}"
        )
