"""SQLite's write-ahead log, switched on where several processes open one new file at the same time."""

from __future__ import annotations

import time

import apsw


def use_wal(connection: apsw.Connection, seconds: float) -> None:
    """Switch a file to WAL; raise apsw.BusyError if others are in the way for `seconds`."""
    # SQLite refuses this statement at once while another process switches the file, whatever the busy timeout.
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return
