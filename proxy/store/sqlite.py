"""The embedded database: one SQLite file that the daemon, sidecars and commands use at once.

WAL mode and `synchronous=FULL`; one thread owns a connection, so that the event
loop of the proxy never waits for a disk.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import apsw
import structlog

from proxy.errors import SchemaError, StoreRefusedError, StoreUnavailableError
from proxy.store.database import Undo, drive
from proxy.store.migrations import migrations
from proxy.system.secret_files import room_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from proxy.store.database import Query, Row, Steps
    from proxy.store.migrations import Migration

log = structlog.get_logger("interlock.store")

STORE_FILE = "store/interlock.db"  # below the state folder
TIMEOUT = 5.0
PAGE_BYTES = 16_384
CHECKPOINT_PAGES = 500
_MARK = re.compile(r"\$(\d+)")
# What is wrong with the data, not with the database.
REFUSED = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)


class SqliteDatabase:
    """A `steps.Database` on one file, made and brought up to date when it is first used.

    Other processes are waited for, for `timeout` seconds at most. Whoever has a thread to wait in has it work there,
    and not `aside`: what is handed from thread to thread is dearer than what is done with it.
    """

    def __init__(self, path: Path, *, timeout: float = TIMEOUT, in_thread: bool = True) -> None:
        self.path = path
        self._timeout = timeout
        self._connection: apsw.Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store") if in_thread else None
        self._closed = False

    async def read[T](self, steps: Callable[[], Steps[T]]) -> T:
        """Carry out steps that change nothing."""
        return await self._in_thread(lambda: self._transact("BEGIN", steps))

    async def write[T](self, steps: Callable[[bool], Steps[T]]) -> T:
        """Carry out steps and give their result once it is on disk."""
        return await self._in_thread(lambda: self._transact("BEGIN IMMEDIATE", lambda: steps(False)))

    async def check(self) -> None:
        """Open the file."""
        await self._in_thread(self._open)

    async def close(self) -> None:
        """Finish what is under way and let go of the file."""
        if not self._closed:
            self._closed = True
            if self._thread is None:
                self._let_go()
                return
            self._thread.submit(self._let_go)
            await asyncio.to_thread(self._thread.shutdown)

    async def _in_thread[T](self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreUnavailableError(f"the store {self.path} is closed")
        if self._thread is None:
            return work()
        under_way = asyncio.get_running_loop().run_in_executor(self._thread, work)
        # Twice the time: once to wait for other processes, once for the turns of our own.
        done, _ = await asyncio.wait({under_way}, timeout=2 * self._timeout)
        if not done:
            under_way.cancel()
            raise StoreUnavailableError(f"the store {self.path} does not answer")
        return under_way.result()

    def _transact[T](self, begin: str, steps: Callable[[], Steps[T]]) -> T:
        """Carry out steps in one transaction. Runs in the thread."""
        connection = self._open()
        try:
            connection.execute(begin)
            result = drive(steps(), lambda query: _execute(connection, query))
            connection.execute("COMMIT")
        except Undo as undo:
            self._roll_back(connection)
            ended: T = undo.result
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
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error as error:
            log.exception("a transaction cannot be undone", path=str(self.path), error=str(error))
            self._let_go()

    def _open(self) -> apsw.Connection:
        if self._connection is None:
            try:
                self._connection = _connect(self.path, self._timeout)
            except (apsw.Error, OSError) as error:
                raise StoreUnavailableError(
                    f"the store {self.path} cannot be opened ({error})"
                    + (room_hint(self.path) or "; restore or move it, or give another --state-dir")
                ) from error
        return self._connection

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _execute(connection: apsw.Connection, query: Query) -> Sequence[Row]:
    return connection.execute(_numbered(query.sql), query.values).fetchall()


@lru_cache(maxsize=256)
def _numbered(sql: str) -> str:
    """Have `$1` stand for the first value by its number: SQLite takes it for a name."""
    return _MARK.sub(r"?\1", sql)


def _connect(path: Path, timeout: float) -> apsw.Connection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.parent.chmod(0o700)
    path.touch(mode=0o600)
    connection = apsw.Connection(str(path))
    try:
        connection.set_busy_timeout(int(timeout * 1000))
        # Of a file that is just being made: an event takes 1.6 kB, and a page costs about the same whatever its size.
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        connection.execute("PRAGMA foreign_keys=ON")
        _migrate(connection, path, migrations("sqlite"))
    except BaseException:
        connection.close()
        raise
    return connection


def schema_version(path: Path) -> int:
    """Return how many migrations the file has, made or not. Raises StoreUnavailableError where it is no store."""
    if not path.exists():
        return 0
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(int(TIMEOUT * 1000))
            return _version(connection)
        finally:
            connection.close()
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
    version: Any = connection.execute("PRAGMA user_version").fetchall()[0][0]
    return int(version)


def _migrate(connection: apsw.Connection, path: Path, known: Sequence[Migration]) -> None:
    """Apply what is missing; several processes may come at once."""
    if _version(connection) == len(known):
        return
    connection.execute("BEGIN IMMEDIATE")
    version = _version(connection)
    check_version(path, version, len(known))
    for migration in known[version:]:
        connection.execute(migration.text)
    connection.execute(f"PRAGMA user_version={len(known)}")
    connection.execute("COMMIT")
