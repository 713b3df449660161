"""SQLite's write-ahead log: switched on where several processes open one new file at the same time, and made long.

A commit appends to it. Where that makes the file longer, its fsync also waits for the file system's own journal, and
takes twice as long as one that writes over what is there. SQLite itself writes over it from the second round on.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

import apsw

if TYPE_CHECKING:
    from pathlib import Path

# SQLite begins its WAL anew after 1,000 pages, with the commit that comes next.
ROUND_BYTES: Final = 1_040 * 4_120
ZEROS: Final = bytes(1 << 16)
USED: Final = 16  # so many commits of one process make it worth the writing
SPARED_BYTES: Final = 256 << 20  # a disk that has no more room than this keeps it


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


class LongWal:
    """Makes the WAL of `database` long, in a thread, once this process has made some commits."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._commits = 0

    def committed(self) -> None:
        """Count a commit."""
        self._commits += 1
        if self._commits == USED:
            threading.Thread(target=lengthen_wal, args=(self._database,), name="wal-length", daemon=True).start()


def lengthen_wal(database: Path, size: int = ROUND_BYTES) -> None:
    """Write zeros behind what the WAL of `database` has, up to `size`; readers take zeros for its end.

    Waits for the disk. Safe beside a connection that commits: what is appended never lies over what that wrote.
    """
    try:
        # Not made here: without one, SQLite has closed the file.
        handle = os.open(f"{database}-wal", os.O_WRONLY | os.O_APPEND)
    except OSError:
        return
    try:
        room = os.fstatvfs(handle)
        while room.f_bavail * room.f_frsize > SPARED_BYTES + size and os.fstat(handle).st_size < size:
            os.write(handle, ZEROS)
            os.fdatasync(handle)  # piece by piece, so that a commit beside it waits for one piece at most
    except OSError:
        return  # commits go on as they are
    finally:
        os.close(handle)
