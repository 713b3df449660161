"""The local durable log: an event is acknowledged once it is on disk.

One SQLite file in WAL mode with `synchronous=FULL`, written by one thread that
takes whatever has queued up into one transaction (group commit), so that a
thousand waiting calls cost one fsync. Each event is a link of the log's chain.

A commit costs as much as many events, so events are gathered on the event loop
first. One that a caller waits for is handed to the thread as soon as the loop has
nothing else to do, and after GATHER_SECONDS at the latest; one that nobody waits
for is handed over with the next of those, or after LATER_SECONDS.

What one caller alone waits for is committed in the event loop's own thread, unless the writer has work or the disk is
slow: two changes of threads less. A log with `direct` serves one client, whose calls come one by one, so that nothing
gathers: it does so at once.
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
from proxy.audit.commit_pace import CommitPace
from proxy.audit.decision_log import log_decisions
from proxy.audit.encoder import Encoder
from proxy.core.event import Head, LogEntry
from proxy.errors import AuditUnavailableError
from proxy.store.wal import LongWal
from proxy.system.package_data import version
from proxy.system.secret_files import room_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from proxy.audit.ship_sources import RecentEvents
    from proxy.core.model import AuditEvent

log = structlog.get_logger("interlock.log")

LOG_FILE = "log/events.db"  # below the state folder
MAX_BATCH = 512
DIGEST_KEY_BYTES = 32
DISCARD_SECONDS = 60.0
GATHER_SECONDS = 0.0005, 0.01  # how long an awaited event is held back while the loop is busy: at first, and at most
LATER_SECONDS = 0.02  # how long an event that nobody waits for is held back: so much of them may be lost by a SIGKILL
SLOW_SECONDS = 0.004  # a commit that takes longer should not hold up the event loop, which serves others meanwhile
DIRECT_SLOW_SECONDS = 0.02  # the same where one client is all that it serves
QUIET_SECONDS = 0.00005  # a turn of the event loop that takes no longer than this had nothing to do


class _Encoded(NamedTuple):
    event: AuditEvent
    body: str
    columns: list[Any] | None
    done: asyncio.Future[None] | None


@dataclasses.dataclass(slots=True)
class _Change:
    """Something else to do with the file than to add events."""

    act: Callable[[apsw.Connection], object]
    done: Future[None]


class _Trial:
    """A request to find out whether the log can be written."""


type _Given = tuple[AuditEvent, asyncio.Future[None] | None]  # an event, and what its caller awaits, if one does
type _Settle = Callable[[list[asyncio.Future[None] | None], Exception | None], None]  # tells those who wait
type _Item = list[_Given] | _Change | _Trial | None  # what the writer's queue takes. None: close


class LocalLog:
    """An EventSink on one SQLite file. Use it from one event loop; close it to flush.

    `digest_key` keys the hashes in events, so that nobody guesses short values from them.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = 1 << 30, digest_key: bytes | None = None, direct: bool = False
    ) -> None:
        self.path = path
        self._direct = direct
        self._disk = threading.Lock()  # held by the thread that uses the connection
        self._waiting = 0  # items of the queue that the writer has not done
        self._pace = CommitPace(DIRECT_SLOW_SECONDS if direct else SLOW_SECONDS)
        self._wal = LongWal(path)
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._gathered: list[_Given] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        # When the first gathered event with a waiting caller came (0: none did), and when the loop turned last.
        self._since = self._turned = 0.0
        self._awaited = 0  # how many of the gathered events have a waiting caller
        self._patience = GATHER_SECONDS[0]
        self._timer: asyncio.TimerHandle | None = None
        # Guards what is gathered against `close` from another thread; re-entrant, because handing over puts.
        self._lock = threading.RLock()
        self._closed = self._ended = False
        self.problem: str | None = None  # why the last event could not be written, if so
        self._connection = open_log(path, max_bytes)
        self.head: Head = local_log_sql.read_head(self._connection)  # the last event that is on disk
        self.recent: RecentEvents | None = None  # takes events that are on disk: the shipper need not read them back
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
            self._hand_over()  # a loop that ended may have left events whose `_turn` never comes
            self._loop, self._thread_id = loop, threading.get_ident()
        done: asyncio.Future[None] = loop.create_future()
        # In the order of the calls: a `decided` is written before the `completed` of the same call.
        self._gathered.append((event, done))
        self._awaited += 1
        if not self._since and not (self._direct and self._commit_here(loop)):
            # The first of a batch starts the watch; those that come meanwhile only join it.
            self._since = self._turned = time.monotonic()
            loop.call_soon(self._turn, loop)
        # The caller forwards the call when this returns, so nothing but the commit may resolve it.
        await done

    def _commit_here(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Commit what gathered in the event loop's own thread; return False where the writer has to."""
        began = time.monotonic()
        # What the writer has not done yet comes first in the log.
        if self._waiting or self._pace.rests(began) or not self._disk.acquire(blocking=False):
            return False
        try:
            written = self._write_events(self._take_gathered(), _resolve)
        finally:
            self._disk.release()
            self._pace.note(began)
        # After the callers whose events these are: a call goes on its way before its line is written.
        loop.call_soon(log_decisions, written)
        return True

    def record_later(self, event: AuditEvent) -> None:
        """Queue `event`; a failure to write it is logged."""
        if self._closed:
            log.error("an event came after the audit log was closed", kind=event.kind, call_id=event.call_id)
            return
        loop = self._loop
        if loop is None or self._thread_id != threading.get_ident() or not loop.is_running():
            # From another thread, or without a loop that would hand it over later: at once. The queue takes both.
            self._put([(event, None)])
            return
        self._gathered.append((event, None))
        if not self._since and self._timer is None:
            # No event with a waiting caller is gathered, so none will take this one along: a timer does.
            self._timer = loop.call_later(LATER_SECONDS, self._hand_over)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand over if this turn of the event loop had no other work, or events were held back long enough."""
        if loop is not self._loop or not self._since:
            return  # another loop took over, or everything was handed over
        now, (least, most) = time.monotonic(), GATHER_SECONDS
        if now - self._turned <= QUIET_SECONDS:
            # The loop ran out of work, because those who would give it some wait for this log: to hold events back any
            # longer gathers no more of them. A commit that begins early ends while other calls still work.
            self._patience = max(least, self._patience / 2)
            # One caller alone is not worth two changes of threads.
            if self._awaited > 1 or not self._commit_here(loop):
                self._hand_over()
        elif now - self._since >= self._patience:
            # The loop always has work, and every turn of it may bring more events: larger commits pay.
            self._patience = min(most, self._patience * 2)
            self._hand_over()
        else:
            self._turned = now
            loop.call_soon(self._turn, loop)

    def _hand_over(self) -> None:
        """Give the writer what has gathered, in its order. `close` may do so from another thread."""
        with self._lock:
            if gathered := self._take_gathered():
                self._put(gathered)

    def _take_gathered(self) -> list[_Given]:
        with self._lock:
            gathered, self._gathered = self._gathered, []
            self._since, self._awaited = 0.0, 0
            timer, self._timer = self._timer, None
            if timer is not None:
                timer.cancel()
            return gathered

    def _put(self, given: list[_Given]) -> None:
        with self._lock:
            if not self._ended:
                # Under the lock: what comes behind the None of `close` is never read, and its callers would hang.
                self._enqueue(given)
                return
        for event, _ in given:
            log.error("an event came after the audit log was closed", kind=event.kind, call_id=event.call_id)
        self._settle([done for _, done in given], AuditUnavailableError(f"{self.path} is closed"))

    def _enqueue(self, item: _Item) -> None:
        with self._lock:
            self._waiting += 1
            self._queue.put(item)

    def discard(self, last: int, rejected: Mapping[int, str]) -> None:
        """Delete events up to number `last`, which are in the store, and set aside those that it rejected.

        Waits, so not for the event loop's thread. Raises AuditUnavailableError where it cannot be done.
        """
        self.change(lambda connection: local_log_sql.discard(connection, last, rejected, time.time()))

    def change(self, act: Callable[[apsw.Connection], object]) -> None:
        """Have the writer's thread do `act`, which commits for itself. Waits and raises as `discard` does."""
        # By the writer's thread: two connections that write would wait for each other's lock in the path of a call.
        done: Future[None] = Future()
        if self._closed:
            raise AuditUnavailableError(f"the audit log {self.path} is closed")
        self._enqueue(_Change(act, done))
        try:
            done.result(DISCARD_SECONDS)
        except Exception as error:
            raise AuditUnavailableError(f"the audit log {self.path} cannot be changed: {error}") from error

    def try_again(self) -> None:
        """Try to write a log that has a `problem`; where it can be written again, the problem is cleared."""
        if not self._closed:
            self._enqueue(_Trial())

    def close(self) -> None:
        """Write what is queued and release the file."""
        if not self._closed:
            self._closed = True  # first: no caller starts to wait from here on
            self._hand_over()
            with self._lock:
                self._ended = True
                self._enqueue(None)  # last in the queue, so all before it is written
            self._thread.join()
            with self._disk:
                self._connection.close()

    def _write_all(self) -> None:
        running = True
        while running:
            # Group commit: whatever came while the last commit was at the disk goes into this one.
            batch = [self._queue.get()]
            while len(batch) < MAX_BATCH:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            running = None not in batch
            with self._disk:
                written = self._write_batch(batch)
            with self._lock:
                self._waiting -= len(batch)
            log_decisions(written)

    def _write_batch(self, batch: list[_Item]) -> list[AuditEvent]:
        """Do what the queue holds; return the events that are on disk now."""
        for item in batch:
            if isinstance(item, _Change):
                self._change(item)  # first, and by itself: in a full log it makes room for the others
        gathered = [given for item in batch if isinstance(item, list) for given in item]
        # Encoded here and not on the event loop, which has calls to serve meanwhile.
        if any(isinstance(item, _Trial) for item in batch):
            self._try()
        return self._write_events(gathered, self._settle)

    def _write_events(self, given: list[_Given], settle: _Settle) -> list[AuditEvent]:
        """Commit events, tell those who wait by `settle`, and return the events that are on disk now."""
        encoded = [one for event, done in given if (one := self._encode(event, done)) is not None]
        if not encoded:
            return []
        # Acknowledged after the commit and by its result, all of a batch alike: a transaction is whole or not.
        error = self._write(encoded)
        settle([one.done for one in encoded], error)
        return [one.event for one in encoded] if error is None else []

    def _encode(self, event: AuditEvent, done: asyncio.Future[None] | None) -> _Encoded | None:
        """Encode an event; one that cannot be encoded fails by itself, and takes none of its batch with it."""
        try:
            return _Encoded(event, *self._encoder.encode(event), done)
        except Exception as error:
            log.exception("an event cannot be encoded", kind=event.kind, error=str(error))
            self._settle([done], error)
            return None

    def _write(self, entries: list[_Encoded]) -> Exception | None:
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

    def _append(self, entries: list[_Encoded]) -> None:
        bodies = [entry.body for entry in entries]
        before = self.head
        try:
            links = local_log_sql.add(self._connection, before, bodies)
        except local_log_sql.BehindError:
            # Another connection wrote meanwhile: `seq` is the key, so SQLite refused what would have forked the chain.
            before = local_log_sql.read_head(self._connection)
            links = local_log_sql.add(self._connection, before, bodies)
        self.head = before.after(links)
        self._wal.committed()
        if (recent := self.recent) is not None:
            numbered = enumerate(zip(entries, links, strict=True), before.seq + 1)
            made = [LogEntry(one.body, before.writer, seq, tip, one.columns) for seq, (one, tip) in numbered]
            recent.add(made, before.seq + 1)

    def _change(self, item: _Change) -> None:
        try:
            item.act(self._connection)
        except Exception as error:  # noqa: BLE001  whatever it is, the thread that waits gets it
            item.done.set_exception(error)
        else:
            item.done.set_result(None)

    def _settle(self, done: Iterable[asyncio.Future[None] | None], error: Exception | None) -> None:
        waiting = [one for one in done if one is not None]
        if waiting:
            try:
                # One wake-up of the event loop for the whole batch: futures belong to its thread.
                waiting[0].get_loop().call_soon_threadsafe(_resolve, waiting, error)
            except RuntimeError:
                log.warning("the event loop ended before its events were acknowledged", count=len(waiting))


def _resolve(waiting: Iterable[asyncio.Future[None] | None], error: Exception | None) -> None:
    for done in waiting:
        if done is None or done.done():
            continue  # nobody waits, or its caller was cancelled meanwhile
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(_unavailable(error))


def _unavailable(error: Exception) -> AuditUnavailableError:
    return AuditUnavailableError(f"the audit log cannot be written: {error}")


def open_log(path: Path, max_bytes: int) -> apsw.Connection:
    """Open the log at `path`, or make it, readable by its owner only. Raises AuditUnavailableError."""
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
    """Yield the events of a log that can be read, oldest first: those past number `after`, or the `last` ones.

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
