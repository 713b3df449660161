"""The tables of one local log: what its writer, its shipper and its readers do with them.

One process writes to a log, and holds the lock beside it. Others read.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

import apsw
import uuid_utils

from proxy.audit import log_sinks
from proxy.core.event import Head, LogEntry, link, start
from proxy.store.queries import Queries
from proxy.store.wal import use_wal
from proxy.system.package_data import sql_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PAGE_BYTES = 4096
BUSY_MS = 5_000
MAX_PAGE = 8 << 20
TRIAL_BYTES = 16 << 10
# How many events a statement inserts. Few statements, because apsw gives up the GIL for each, and other threads go
# first; few kinds of them, so that all stay prepared.
AT_ONCE = 64
_ROWS = (AT_ONCE, 16, 4, 1)
SEPARATOR = "\x1e"  # as in `page_at_once`
SQL = Queries("log")


class BehindError(Exception):
    """The log has come further than its writer knows."""


@dataclass(frozen=True, slots=True)
class LogState:
    """The state of a log: its head, what was moved to the store and when, and why the rest was not."""

    head: Head
    moved: int
    moved_at: float | None
    destination: str | None
    problem: str | None
    rejected: int
    oldest: str | None  # the text of the oldest event that was not moved yet

    @property
    def backlog(self) -> int:
        return self.head.seq - self.moved


def connect(path: Path, max_bytes: int) -> apsw.Connection:
    """Open the log at `path`, or make it. Raises apsw.Error where it is no log."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    # WAL: a commit is one append and one fsync, and readers never wait for the writer.
    use_wal(connection, BUSY_MS / 1000)
    # FULL: that fsync comes before the commit returns. NORMAL would leave it to a later checkpoint, and a power cut
    # would take events back whose calls were forwarded.
    connection.execute("PRAGMA synchronous=FULL")
    # A full log refuses events, and so calls; without a bound a store that is down would fill the disk for everybody.
    connection.execute(f"PRAGMA max_page_count={max(16, max_bytes // PAGE_BYTES)}")
    if not _rows(connection, SQL["has_sink_table"]):  # the youngest of its tables
        with change(connection):
            _begin(connection)
    return connection


def connect_reader(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_MS)  # opened to write too: a reader of a WAL file may have to recover it
    return connection


@contextlib.contextmanager
def change(connection: apsw.Connection) -> Iterator[None]:
    """Commit what the block does, all or nothing."""
    connection.execute("BEGIN IMMEDIATE")  # waits for the write lock here, and not in the middle
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _begin(connection: apsw.Connection) -> None:
    """Make the tables. Events of a log from before there were chains are numbered anew and become its beginning."""
    connection.execute((sql_dir() / "log.sql").read_text())
    if _rows(connection, SQL["has_log_row"]):
        return  # another process came first
    if not _rows(connection, SQL["has_chain_column"]):
        connection.execute(SQL["add_chain_column"])
    head = start(str(uuid_utils.uuid7()))
    seq, tip = head.seq, head.hash
    for number in [row[0] for row in _rows(connection, SQL["list_numbers"])]:
        ((body,),) = _rows(connection, SQL["find_body"], number)
        seq, tip = seq + 1, link(tip, seq + 1, body)
        connection.execute(SQL["link_event"], (seq, tip, number))
    connection.execute(SQL["begin_log"], (head.writer, head.hash))


def add(connection: apsw.Connection, head: Head, bodies: Sequence[str]) -> list[str]:
    """Add events behind the last one, which is `head`, all or none; return their links once they are on disk.

    Raises BehindError where another connection has written meanwhile.
    """
    tip = head.hash
    rows: list[int | str] = []
    links: list[str] = []
    for seq, body in enumerate(bodies, head.seq + 1):
        tip = link(tip, seq, body)
        rows += (seq, body, tip)
        links.append(tip)
    if len(bodies) > AT_ONCE:
        with change(connection):
            offset = 0
            for count in _ROWS:
                while len(rows) - offset >= 3 * count:
                    _insert(connection, count, rows[offset : offset + 3 * count])
                    offset += 3 * count
    else:
        # One statement is a transaction of its own, and returns once it is committed: two statements less.
        _insert(connection, len(bodies), rows)
    return links


@cache
def _insert_sql(count: int) -> str:
    return SQL.compose("insert_events", rows=", ".join(["(?, ?, ?)"] * count))


def _insert(connection: apsw.Connection, count: int, values: list[int | str]) -> None:
    try:
        connection.execute(_insert_sql(count), values)
    except apsw.ConstraintError as error:
        raise BehindError from error


def discard(connection: apsw.Connection, last: int, rejected: Mapping[int, str], now: float) -> None:
    """Delete events up to number `last`, which are in the store; set aside those that it rejected, by number.

    What a sink has not taken yet stays, as far as its bound allows.
    """
    with change(connection):  # whole: no event may be deleted that is neither in the store nor set aside
        connection.executemany(SQL["set_aside"], [(reason, now, seq) for seq, reason in rejected.items()])
        connection.execute(SQL["mark_moved"], {"last": last, "now": now})
        log_sinks.let_go(connection, now)
        delete_moved(connection)


def delete_moved(connection: apsw.Connection) -> None:
    """Delete what the store and every sink have. To be called within `change`."""
    connection.execute(SQL["delete_moved"])


def try_to_write(connection: apsw.Connection) -> None:
    """Raise apsw.Error where no event could be added now. Leaves nothing behind."""
    last = _rows(connection, SQL["last_number"])[0][0]
    connection.execute("BEGIN IMMEDIATE")
    try:
        # As large as a large event, so that a log that is nearly full does not pass for one with room.
        connection.execute(_insert_sql(1), (last + 1, "x" * TRIAL_BYTES, ""))
        connection.cache_flush()  # to the disk: else a full one is noticed at a commit that never comes
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    with change(connection):
        connection.execute(SQL["touch_log"])


def note_problem(connection: apsw.Connection, problem: str | None) -> None:
    with change(connection):
        connection.execute(SQL["set_problem"], (problem,))


def set_destination(connection: apsw.Connection, destination: str) -> None:
    if _rows(connection, SQL["has_other_destination"], destination):
        with change(connection):
            connection.execute(SQL["set_destination"], (destination,))


def read_head(connection: apsw.Connection) -> Head:
    ((writer, seq, tip),) = _rows(connection, SQL["head"])
    return Head(writer, seq, tip)


def read_link(connection: apsw.Connection, seq: int) -> str | None:
    """Return the link of an event that the log still has."""
    found = _rows(connection, SQL["find_link"], seq)
    return found[0][0] if found else None


def read_state(connection: apsw.Connection) -> LogState | None:
    """Return the state of a log; None where it is just being made or is from before there were chains."""
    if not _rows(connection, SQL["has_log_table"]):
        return None
    found = _rows(connection, SQL["state"])
    return LogState(read_head(connection), *found[0]) if found else None


def page(
    connection: apsw.Connection,
    writer: str,
    after: int,
    limit: int,
    *,
    rejected: bool = False,
    kept: bool = False,
) -> list[LogEntry]:
    """Return events past number `after` in their order; with `rejected`, those that were set aside too.

    Never more than `limit`, nor much more than MAX_PAGE characters. With `kept` also what the store has and a sink has
    not: for everybody else such an event is no longer in the log.
    """
    if not rejected and not kept:
        after = max(after, _moved(connection))
    if not rejected and (at_once := _page_at_once(connection, writer, after, limit)) is not None:
        return at_once
    found: list[LogEntry] = []
    size = 0
    statement = SQL["page_with_rejected"] if rejected else SQL["page"]
    cursor: Any = connection.execute(statement, {"after": after, "limit": limit})
    for body, seq, tip in cursor:
        found.append(LogEntry(body, writer, seq, tip))
        size += len(body)
        if size >= MAX_PAGE:
            break
    cursor.close(True)
    return found


def newest(connection: apsw.Connection, after: int, limit: int | None) -> list[tuple[int, str]]:
    """Return number and text of events past number `after` that are not in the store, newest first."""
    if _rows(connection, SQL["has_log_table"]):
        after = max(after, _moved(connection))
    return _rows(connection, SQL["newest_events"], after, -1 if limit is None else limit)


def _page_at_once(connection: apsw.Connection, writer: str, after: int, limit: int) -> list[LogEntry] | None:
    """Return a page by two statements; None where it is too large, or has a gap, or a text holds the separator."""
    # Not row by row: apsw gives up the GIL for each row, and other threads go first.
    ((count, size, first, last),) = _rows(connection, SQL["page_size"], after, limit)
    if not count:
        return []
    if size >= MAX_PAGE or last - first != count - 1:
        return None
    ((bodies, seqs, tips),) = _rows(connection, SQL["page_at_once"], first - 1, count)
    if seqs != ",".join(map(str, range(first, last + 1))):
        return None  # some were deleted between the two statements
    texts, links = bodies.split(SEPARATOR), (tips or "").split(",")
    if not len(texts) == len(links) == count:
        return None
    return list(map(LogEntry, texts, repeat(writer), range(first, last + 1), links))


def _moved(connection: apsw.Connection) -> int:
    found = _rows(connection, SQL["moved_number"])
    return int(found[0][0]) if found else 0


def _rows(connection: apsw.Connection, sql: str, *values: Any) -> list[Any]:
    rows: list[Any] = connection.execute(sql, values).fetchall()
    return rows
