"""The tables of one local log: what its writer, its shipper and its readers do with them.

Every change is one transaction that begins by taking the file for itself, so several
processes may use one log: the chain goes on from where it is in the file.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw
import uuid_utils

from proxy.events import Entry
from proxy.resources import sql_dir
from proxy.store.chain import Head, link, start

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PAGE_BYTES = 4096
BUSY_MS = 5_000
MAX_PAGE = 8 << 20
_INSERT = "INSERT INTO events (seq, body, chain) VALUES (?, ?, ?)"
_STATE = (
    "SELECT writer, seq, hash, moved, moved_at, destination, problem, (SELECT count(*) FROM rejected), "
    "(SELECT body FROM events ORDER BY seq LIMIT 1) FROM log"
)
_PAGE = "SELECT body, seq, chain FROM events WHERE seq > $after ORDER BY seq LIMIT $limit"
_PAGE_OF_ALL = (
    "SELECT body, seq, chain FROM events WHERE seq > $after "
    "UNION ALL SELECT body, seq, chain FROM rejected WHERE seq > $after ORDER BY seq LIMIT $limit"
)


@dataclass(frozen=True, slots=True)
class LogState:
    """How a log stands: its head, what was moved to the store and when, and what keeps the rest."""

    head: Head
    moved: int
    moved_at: float | None
    destination: str | None
    problem: str | None
    rejected: int
    oldest: str | None
    """The text of the oldest event that was not moved yet."""

    @property
    def backlog(self) -> int:
        """How many events were not moved yet."""
        return self.head.seq - self.moved


def connect(path: Path, max_bytes: int) -> apsw.Connection:
    """Open the log at `path`, durable and bounded, and give it its chain where it has none.

    Raises apsw.Error where it is no log.
    """
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA max_page_count={max(16, max_bytes // PAGE_BYTES)}")
    if not _rows(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'log'"):
        with change(connection):
            _begin(connection)
    return connection


def connect_reader(path: Path) -> apsw.Connection:
    """Open a log that is there already, to read it."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(BUSY_MS)
    return connection


@contextlib.contextmanager
def change(connection: apsw.Connection) -> Iterator[None]:
    """Make a change as a whole, or not at all."""
    connection.execute("BEGIN IMMEDIATE")
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
    if _rows(connection, "SELECT 1 FROM log"):
        return  # another process came first
    if not _rows(connection, "SELECT 1 FROM pragma_table_info('events') WHERE name = 'chain'"):
        connection.execute("ALTER TABLE events ADD COLUMN chain TEXT")
    head = start(str(uuid_utils.uuid7()))
    seq, tip = head.seq, head.hash
    for number in [row[0] for row in _rows(connection, "SELECT seq FROM events ORDER BY seq")]:
        ((body,),) = _rows(connection, "SELECT body FROM events WHERE seq = ?", number)
        seq, tip = seq + 1, link(tip, seq + 1, body)
        connection.execute("UPDATE events SET seq = ?, chain = ? WHERE seq = ?", (seq, tip, number))
    connection.execute("INSERT INTO log (id, writer, seq, hash) VALUES (1, ?, ?, ?)", (head.writer, seq, tip))


def append(connection: apsw.Connection, bodies: Sequence[str]) -> Head:
    """Add events behind the last one. To be used within a change; give the new head."""
    ((writer, seq, tip),) = _rows(connection, "SELECT writer, seq, hash FROM log")
    rows = []
    for body in bodies:
        seq, tip = seq + 1, link(tip, seq + 1, body)
        rows.append((seq, body, tip))
    connection.executemany(_INSERT, rows)
    connection.execute("UPDATE log SET seq = ?, hash = ?", (seq, tip))
    return Head(writer, seq, tip)


def discard(connection: apsw.Connection, last: int, rejected: Mapping[int, str], now: float) -> None:
    """Let go of events up to number `last`, which are in the store; set those aside that it rejected, by number."""
    with change(connection):
        connection.executemany(
            "INSERT INTO rejected SELECT seq, body, chain, ?, ? FROM events WHERE seq = ? ON CONFLICT DO NOTHING",
            [(reason, now, seq) for seq, reason in rejected.items()],
        )
        connection.execute("DELETE FROM events WHERE seq <= ?", (last,))
        connection.execute("UPDATE log SET moved = max(moved, ?), moved_at = ?, problem = NULL", (last, now))


def note_problem(connection: apsw.Connection, problem: str | None) -> None:
    """Note why events are not moved on, or that they are again."""
    with change(connection):
        connection.execute("UPDATE log SET problem = ?", (problem,))


def set_destination(connection: apsw.Connection, destination: str) -> None:
    """Note where the events of the log go."""
    if _rows(connection, "SELECT 1 FROM log WHERE destination IS NOT ?", destination):
        with change(connection):
            connection.execute("UPDATE log SET destination = ?", (destination,))


def read_state(connection: apsw.Connection) -> LogState | None:
    """Give how a log stands; None where it is just being made or is from before there were chains."""
    if not _rows(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'log'"):
        return None
    found = _rows(connection, _STATE)
    if not found:
        return None
    writer, seq, tip, *rest = found[0]
    return LogState(Head(writer, seq, tip), *rest)


def page(connection: apsw.Connection, writer: str, after: int, limit: int, *, rejected: bool = False) -> list[Entry]:
    """Give events past number `after` in their order, on wish with those that were set aside.

    Never more than `limit`, nor much more than MAX_PAGE characters.
    """
    found: list[Entry] = []
    size = 0
    cursor: Any = connection.execute(_PAGE_OF_ALL if rejected else _PAGE, {"after": after, "limit": limit})
    for body, seq, tip in cursor:
        found.append(Entry(body, writer, seq, tip))
        size += len(body)
        if size >= MAX_PAGE:
            break
    cursor.close(True)
    return found


def _rows(connection: apsw.Connection, sql: str, *values: Any) -> list[Any]:
    rows: list[Any] = connection.execute(sql, values).fetchall()
    return rows
