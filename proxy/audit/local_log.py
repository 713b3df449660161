"""The local durable log: an event is acknowledged once it is on disk.

One SQLite file in WAL mode with `synchronous=FULL`, written by one thread that
takes whatever has queued up into one transaction (group commit), so that a
thousand waiting calls cost one fsync. Each event is a link of the log's chain.

A commit costs as much as many events, so events gather on the event loop first:
one that somebody waits for is handed over as soon as the loop has nothing else to
do, and soon in any case; one that nobody waits for goes with the next that is.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import queue
import secrets
import socket
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import structlog

from proxy.audit import local_log_sql
from proxy.audit.encoder import Encoder
from proxy.audit.event import Entry
from proxy.errors import AuditUnavailableError
from proxy.system.package_data import version
from proxy.system.secret_files import room_hint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from proxy.audit.hash_chain import Head
    from proxy.audit.recent_events import Fresh
    from proxy.core.model import AuditEvent

log = structlog.get_logger("interlock.log")

LOG_FILE = "log/events.db"  # below the state folder
MAX_BATCH = 512
DIGEST_KEY_BYTES = 32
DISCARD_SECONDS = 60.0
GATHER_SECONDS = 0.0005, 0.01
"""How long an event that somebody waits for gathers company while the event loop is busy: at first, and at most."""
LATER_SECONDS = 0.02
"""How long one that nobody waits for does."""
QUIET_SECONDS = 0.00005
"""A turn of the event loop that takes no longer than this had nothing to do."""


class _Spelt(NamedTuple):
    body: str
    said: list[Any] | None
    done: asyncio.Future[None] | None


@dataclasses.dataclass(slots=True)
class _Discard:
    last: int
    rejected: Mapping[int, str]
    done: Future[None]


class _Trial:
    """Asks whether the log can be written."""


type _Given = tuple[AuditEvent, asyncio.Future[None] | None]
"""An event, and who waits for it."""
type _Item = list[_Given] | _Discard | _Trial | None
"""None: close."""


class LocalLog:
    """An EventSink on one SQLite file. Use from one event loop; close it to flush.

    `digest_key` keys the hashes in events, so that nobody guesses short values from them.
    """

    def __init__(self, path: Path, *, max_bytes: int = 1 << 30, digest_key: bytes | None = None) -> None:
        self.path = path
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._gathered: list[_Given] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._since = self._turned = 0.0
        """When the first event that somebody waits for came, and when the event loop turned last; 0: none waits."""
        self._patience = GATHER_SECONDS[0]
        self._timer: asyncio.TimerHandle | None = None
        self._lock = threading.RLock()
        self._closed = self._ended = False
        self.problem: str | None = None
        """Why the last event could not be written, if so."""
        self._connection = open_log(path, max_bytes)
        self.head: Head = local_log_sql.read_head(self._connection)
        """The last event that is on disk."""
        self.fresh: Fresh | None = None
        """Where events go once they are on disk, if somebody wants them."""
        stamp = {"writer": self.head.writer, "host": socket.gethostname(), "proxy_version": version()}
        self._encoder = Encoder(stamp, digest_key or secrets.token_bytes(DIGEST_KEY_BYTES))
        self._thread = threading.Thread(target=self._write_all, name="audit-log", daemon=True)
        self._thread.start()

    async def record(self, event: AuditEvent) -> None:
        """Return once `event` is on disk. Raises AuditUnavailableError where it cannot be."""
        if self._closed:
            raise AuditUnavailableError(f"the audit log {self.path} is closed")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._hand_over()  # a loop that ended may have left some
            self._loop, self._thread_id = loop, threading.get_ident()
        done: asyncio.Future[None] = loop.create_future()
        self._gathered.append((event, done))
        if not self._since:
            self._since = self._turned = time.monotonic()
            loop.call_soon(self._turn, loop)
        await done

    def record_later(self, event: AuditEvent) -> None:
        """Queue `event`; a failure to write it is logged."""
        if self._closed:
            log.error("an event came after the audit log was closed", kind=event.kind, call_id=event.call_id)
            return
        loop = self._loop
        if loop is None or self._thread_id != threading.get_ident() or not loop.is_running():
            self._put([(event, None)])
            return
        self._gathered.append((event, None))
        if not self._since and self._timer is None:
            self._timer = loop.call_later(LATER_SECONDS, self._hand_over)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand over if this turn of the event loop had no other work, or it has been long enough.

        How long that is grows while the loop always has work. Where it runs out of it, since those who would give it
        some wait here, it shrinks: a commit that is begun early is done while the others still work.
        """
        if loop is not self._loop or not self._since:
            return  # another loop goes on, or all was handed over
        now, (least, most) = time.monotonic(), GATHER_SECONDS
        if now - self._turned <= QUIET_SECONDS:
            self._patience = max(least, self._patience / 2)
            self._hand_over()
        elif now - self._since >= self._patience:
            self._patience = min(most, self._patience * 2)
            self._hand_over()
        else:
            self._turned = now
            loop.call_soon(self._turn, loop)

    def _hand_over(self) -> None:
        """Wake the writer for all that has gathered. Whoever closes the log may do so from another thread."""
        with self._lock:
            gathered, self._gathered = self._gathered, []
            self._since = 0.0
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            if gathered:
                self._put(gathered)

    def _put(self, given: list[_Given]) -> None:
        with self._lock:
            if not self._ended:
                self._queue.put(given)
                return
        for event, _ in given:
            log.error("an event came after the audit log was closed", kind=event.kind, call_id=event.call_id)
        self._settle([done for _, done in given], AuditUnavailableError(f"{self.path} is closed"))

    def discard(self, last: int, rejected: Mapping[int, str]) -> None:
        """Let go of events up to number `last`, which are in the store, and set aside those it rejected.

        For another thread than the event loop's: it waits. Raises AuditUnavailableError where it cannot be done.
        """
        done: Future[None] = Future()
        if self._closed:
            raise AuditUnavailableError(f"the audit log {self.path} is closed")
        self._queue.put(_Discard(last, rejected, done))
        try:
            done.result(DISCARD_SECONDS)
        except Exception as error:
            raise AuditUnavailableError(f"the audit log {self.path} cannot be cleared: {error}") from error

    def try_again(self) -> None:
        """Have a log with a `problem` tried; where it can be written again, the problem goes."""
        if not self._closed:
            self._queue.put(_Trial())

    def close(self) -> None:
        """Write what is queued and release the file."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            with self._lock:
                self._ended = True
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
            for item in batch:
                if isinstance(item, _Discard):
                    self._discard(item)  # first, and by itself: it makes the room that the others may need
            gathered = [given for item in batch if isinstance(item, list) for given in item]
            encoded = [one for given in gathered if (one := self._spell(*given)) is not None]
            if any(isinstance(item, _Trial) for item in batch):
                self._try()
            if encoded:
                self._settle([one.done for one in encoded], self._write(encoded))

    def _spell(self, event: AuditEvent, done: asyncio.Future[None] | None) -> _Spelt | None:
        """Spell an event; one that cannot be spelt fails by itself."""
        try:
            return _Spelt(*self._encoder.encode(event), done)
        except Exception as error:
            log.exception("an event cannot be written", kind=event.kind, error=str(error))
            self._settle([done], error)
            return None

    def _write(self, entries: list[_Spelt]) -> Exception | None:
        """Commit `entries`; return the error where that failed. Never raises: the thread must outlive it."""
        try:
            self._append(entries)
        except Exception as error:
            self.problem = what = f"{str(error) or type(error).__name__}{room_hint(self.path)}"
            log.exception("the audit log cannot be written", path=str(self.path), error=what)
            return error
        self.problem = None
        return None

    def _try(self) -> None:
        try:
            local_log_sql.try_to_write(self._connection)
        except Exception as error:  # noqa: BLE001  whatever it is, the log cannot be written yet
            self.problem = str(error) or type(error).__name__
        else:
            self.problem = None

    def _append(self, entries: list[_Spelt]) -> None:
        bodies = [entry.body for entry in entries]
        before = self.head
        try:
            links = local_log_sql.add(self._connection, before, bodies)
        except local_log_sql.BehindError:
            before = local_log_sql.read_head(self._connection)
            links = local_log_sql.add(self._connection, before, bodies)
        self.head = before.after(links)
        if (fresh := self.fresh) is not None:
            numbered = enumerate(zip(entries, links, strict=True), before.seq + 1)
            made = [Entry(one.body, before.writer, seq, tip, one.said) for seq, (one, tip) in numbered]
            fresh.add(made, before.seq + 1)

    def _discard(self, item: _Discard) -> None:
        try:
            local_log_sql.discard(self._connection, item.last, item.rejected, time.time())
        except Exception as error:  # noqa: BLE001  whatever it is, the one who asked is told
            item.done.set_exception(error)
        else:
            item.done.set_result(None)

    def _settle(self, done: Iterable[asyncio.Future[None] | None], error: Exception | None) -> None:
        waiting = [one for one in done if one is not None]
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
        return local_log_sql.connect(path, max_bytes)
    except (apsw.Error, OSError) as error:
        raise AuditUnavailableError(
            f"the audit log {path} cannot be opened ({error})"
            + (room_hint(path) or "; restore or move it, or give another --state-dir")
        ) from error


def read_log(path: Path, after: int = 0, last: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Return the events of a log that can be read, oldest first: those past number `after`, or the `last` ones.

    Raises AuditUnavailableError where `path` is no log.
    """
    try:
        with contextlib.closing(local_log_sql.connect_reader(path)) as connection:
            if connection.pragma("schema_version") == 0:
                return  # it is just being made
            rows = local_log_sql.newest(connection, after, last)
    except apsw.Error as error:
        raise AuditUnavailableError(f"{path} cannot be read as an audit log ({error})") from error
    for seq, body in reversed(rows):
        try:
            event = json.loads(body)
            float(event["time"]), event["event_id"], event["kind"]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue  # damaged on disk: the shipper sets it aside and reports it
        yield int(seq), event
