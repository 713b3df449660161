"""The local durable log: an event is acknowledged once it is on disk.

One SQLite file in WAL mode with `synchronous=FULL`, written by one thread that
takes whatever has queued up into one transaction (group commit), so that a
thousand waiting calls cost one fsync.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import queue
import threading
from typing import TYPE_CHECKING, Any

import apsw
import structlog

from proxy.errors import AuditUnavailableError
from proxy.model import AuditEvent
from proxy.resources import sql_dir
from proxy.spelling import spell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

log = structlog.get_logger("interlock.log")

LOG_FILE = "log/events.db"  # below the state folder
PAGE_BYTES = 4096
MAX_BATCH = 512
BUSY_MS = 5_000
_INSERT = "INSERT INTO events (body) VALUES (?)"


@dataclasses.dataclass(slots=True)
class _Entry:
    event: AuditEvent
    done: asyncio.Future[None] | None = None
    body: str = ""


class LocalLog:
    """An EventSink on one SQLite file. Use from one event loop; close it to flush."""

    def __init__(self, path: Path, *, max_bytes: int = 1 << 30) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._closed = False
        self._connection = open_log(path, max_bytes)
        self._thread = threading.Thread(target=self._write_all, name="audit-log", daemon=True)
        self._thread.start()

    async def record(self, event: AuditEvent) -> None:
        """Return once `event` is on disk. Raises AuditUnavailableError where it cannot be."""
        if self._closed:
            raise AuditUnavailableError(f"the audit log {self._path} is closed")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put(_Entry(event, done))
        await done

    def record_later(self, event: AuditEvent) -> None:
        """Queue `event`; a failure to write it is logged."""
        if self._closed:
            log.error("an event came after the audit log was closed", kind=event.kind, call_id=event.call_id)
            return
        self._queue.put(_Entry(event))

    def close(self) -> None:
        """Write what is queued and release the file."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()
            self._connection.close()

    def _write_all(self) -> None:
        running = True
        while running:
            batch = [self._queue.get()]
            while len(batch) < MAX_BATCH:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            running = None not in batch
            entries = [entry for entry in batch if entry is not None and self._encode(entry)]
            if entries:
                self._settle(entries, self._write(entries))

    def _encode(self, entry: _Entry) -> bool:
        """Spell an entry; one that cannot be spelt fails by itself."""
        try:
            entry.body = encode(entry.event)
        except Exception as error:
            log.exception("an event cannot be written", kind=entry.event.kind, error=str(error))
            self._settle([entry], error)
            return False
        return True

    def _write(self, entries: list[_Entry]) -> Exception | None:
        """Commit `entries`; give the error where that failed. Never raises: the thread must outlive it."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERT, [(entry.body,) for entry in entries])
            self._connection.execute("COMMIT")
        except Exception as error:
            log.exception("the audit log cannot be written", path=str(self._path), error=str(error))
            self._roll_back()
            return error
        return None

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error as error:
            log.exception("a transaction cannot be undone", path=str(self._path), error=str(error))

    def _settle(self, entries: list[_Entry], error: Exception | None) -> None:
        waiting = [entry.done for entry in entries if entry.done is not None]
        if waiting:
            try:
                waiting[0].get_loop().call_soon_threadsafe(_resolve, waiting, error)
            except RuntimeError:
                log.warning("the event loop ended before its events were acknowledged", count=len(waiting))


def _resolve(waiting: list[asyncio.Future[None]], error: Exception | None) -> None:
    for done in waiting:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(AuditUnavailableError(f"the audit log cannot be written: {error}"))


def open_log(path: Path, max_bytes: int) -> apsw.Connection:
    """Open (and make, readable by its owner only) the log at `path`, durable and bounded.

    Raises AuditUnavailableError where that cannot be done.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        return _connect(path, max_bytes)
    except (apsw.Error, OSError) as error:
        raise AuditUnavailableError(
            f"the audit log {path} cannot be opened ({error}); restore or move it, or give another --state-dir"
        ) from error


def _connect(path: Path, max_bytes: int) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(BUSY_MS)
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA max_page_count={max(16, max_bytes // PAGE_BYTES)}")
    connection.execute((sql_dir() / "log.sql").read_text())
    return connection


def encode(event: AuditEvent) -> str:
    """Give the stored form of `event`: one JSON object, fields that say nothing left out."""
    fields: dict[str, Any] = {}
    for name in _FIELDS:
        value = getattr(event, name)
        if value is not None and value not in ((), {}):
            fields[name] = value
    if event.redactions:
        fields["redactions"] = [dataclasses.asdict(finding) for finding in event.redactions]
    # Half a surrogate pair (a header's odd byte, say) is no text that a database takes.
    return spell(fields).encode("utf-8", "replace").decode()


_FIELDS = tuple(field.name for field in dataclasses.fields(AuditEvent))


def read_log(path: Path, after: int = 0, last: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give the events of a log, oldest first: those past number `after`, or the `last` ones.

    Raises AuditUnavailableError where `path` is no log.
    """
    query = "SELECT seq, body FROM events WHERE seq > ? ORDER BY seq DESC LIMIT ?"
    try:
        with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.set_busy_timeout(BUSY_MS)
            if connection.pragma("schema_version") == 0:
                return  # it is just being made
            rows: list[Any] = connection.execute(query, (after, -1 if last is None else last)).fetchall()
    except apsw.Error as error:
        raise AuditUnavailableError(f"{path} cannot be read as an audit log ({error})") from error
    for seq, body in reversed(rows):
        yield int(seq), json.loads(body)
