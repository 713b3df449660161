"""The embedded database: one SQLite file that the daemon, sidecars and commands use at once.

WAL mode and `synchronous=FULL`. One thread owns a connection, so that the proxy's event loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import apsw
import structlog

from proxy.errors import SchemaError, StoreRefusedError, StoreUnavailableError
from proxy.store.database import Database, Rollback, Row, Work
from proxy.store.migrate import Migration, migrations
from proxy.store.wal import use_wal
from proxy.system.secret_files import room_hint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path


log = structlog.get_logger("interlock.store")

STORE_FILE = "store/interlock.db"  # below the state folder
TIMEOUT = 5.0
PAGE_BYTES = 16_384
CHECKPOINT_PAGES = 500
_MARK = re.compile(r"\$(\d+)")
# What is wrong with the data, not with the database.
REFUSED = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)


class _SqliteTransaction:
    """A `database.Transaction` whose `fetch` never waits: it runs in the thread that owns the connection."""

    retried = False  # a file has no connection that breaks

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *values: Any) -> Sequence[Row]:
        return self._connection.execute(numbered(sql), values).fetchall()


class SqliteDatabase(Database):
    """A `database.Database` on one file, created and migrated when it is first used.

    Waits up to `timeout` seconds for other processes. A caller that has a thread to wait in passes `in_thread=False`:
    handing work from thread to thread costs more than the work itself.
    """

    def __init__(self, path: Path, *, timeout: float = TIMEOUT, in_thread: bool = True) -> None:
        self.path = path
        self._timeout = timeout
        self._connection: apsw.Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store") if in_thread else None
        self._closed = False
        self._opened = 0

    async def transaction[T](self, work: Work[T], *, read_only: bool = False) -> T:
        # IMMEDIATE takes the write lock first. A plain BEGIN takes it at the first change, and there SQLite refuses at
        # once, without waiting, if another process has written since this one began to read.
        begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
        return await self._in_thread(lambda: self._transact(begin, work))

    def version(self) -> tuple[int, int] | None:
        if self._thread is not None:
            return None
        if self._closed:
            raise StoreUnavailableError(f"the store {self.path} is closed")
        connection = self._open()
        try:
            # Exact: it begins a transaction, and so sees whatever was committed before.
            version = int(connection.execute("PRAGMA data_version").fetchall()[0][0])  # type: ignore[arg-type]
        except apsw.Error as error:
            raise StoreUnavailableError(f"the store {self.path} cannot be used: {error}") from error
        return self._opened, version

    async def check(self) -> None:
        await self._in_thread(self._open)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._thread is None:
                self._drop_connection()
                return
            self._thread.submit(self._drop_connection)
            await asyncio.to_thread(self._thread.shutdown)

    async def _in_thread[T](self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreUnavailableError(f"the store {self.path} is closed")
        if self._thread is None:
            return work()
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        # Twice the time: once to wait for other processes, once for the work of our own that is queued before.
        done, _ = await asyncio.wait({running}, timeout=2 * self._timeout)
        if not done:
            running.cancel()
            raise StoreUnavailableError(f"the store {self.path} does not answer")
        return running.result()

    def _transact[T](self, begin: str, work: Work[T]) -> T:
        """Run in the thread that owns the connection."""
        connection = self._open()
        try:
            # Explicit BEGIN and COMMIT: apsw's `with connection` makes a savepoint, which takes the write lock late.
            connection.execute(begin)
            result = _run(work(_SqliteTransaction(connection)))
            connection.execute("COMMIT")
        except Rollback as ending:
            self._roll_back(connection)
            ended: T = ending.result
            return ended
        except StoreUnavailableError:
            self._roll_back(connection)
            raise
        except Exception as error:
            self._roll_back(connection)
            kind = StoreRefusedError if isinstance(error, REFUSED) else StoreUnavailableError
            raise kind(f"the store {self.path} cannot be used: {error}{room_hint(self.path)}") from error
        return result

    def _roll_back(self, connection: apsw.Connection) -> None:
        try:
            # SQLite has ended the transaction itself after some errors, a full disk for one.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error as error:
            log.exception("a transaction cannot be rolled back", path=str(self.path), error=str(error))
            self._drop_connection()

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            try:
                self._connection = _connect(self.path, self._timeout)
                self._opened += 1
            except (apsw.Error, OSError) as error:
                raise StoreUnavailableError(
                    f"the store {self.path} cannot be opened ({error})"
                    + (room_hint(self.path) or "; restore or move it, or give another --state-dir")
                ) from error
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _run[T](work: Awaitable[T]) -> T:
    """Return what `work` returns. It has nothing to wait for, so one step brings it to its end, without a loop."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("the work of a transaction waits for something other than its database")


@lru_cache(maxsize=256)
def numbered(sql: str) -> str:
    """Replace `$1` by `?1`: SQLite takes the former for a name."""
    return _MARK.sub(r"?\1", sql)


def _connect(path: Path, timeout: float) -> apsw.Connection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.parent.chmod(0o700)
    path.touch(mode=0o600)
    connection = apsw.Connection(str(path))
    try:
        connection.set_busy_timeout(int(timeout * 1000))
        # For a new file only: an event takes 1.6 kB, and a page costs about the same whatever its size.
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        # WAL with FULL: each commit is one fsync, and what was acknowledged outlives a power cut.
        use_wal(connection, timeout)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        connection.execute("PRAGMA foreign_keys=ON")
        _migrate(connection, path, migrations("sqlite"))
    except BaseException:
        connection.close()
        raise
    return connection


def schema_version(path: Path) -> int:
    """Return how many migrations the file has, 0 without a file. Raises StoreUnavailableError where it is no store."""
    if not path.exists():
        return 0
    try:
        with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.set_busy_timeout(int(TIMEOUT * 1000))
            return _version(connection)
    except apsw.Error as error:
        raise StoreUnavailableError(f"{path} cannot be read as a store ({error})") from error


def check_version(path: Path, version: int, known: int) -> None:
    """Raise SchemaError where only a newer interlock knows the schema of the file."""
    if version > known:
        raise SchemaError(
            f"the store {path} has schema {version}, and this interlock knows {known}: "
            "a newer one made it; use that one, or give another --state-dir"
        )


def _version(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def _migrate(connection: apsw.Connection, path: Path, known: Sequence[Migration]) -> None:
    """Apply what is missing. Several processes may do so at once."""
    if _version(connection) == len(known):
        return
    connection.execute("BEGIN IMMEDIATE")
    version = _version(connection)  # again: another process may have migrated while this one waited for the lock
    check_version(path, version, len(known))
    for migration in known[version:]:
        connection.execute(migration.text)
    connection.execute(f"PRAGMA user_version={len(known)}")
    connection.execute("COMMIT")
