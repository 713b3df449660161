"""The logs that a shipper empties: the one this process writes, and those that others left behind."""

from __future__ import annotations

import abc
import contextlib
import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from proxy.audit import local_log_sql
from proxy.audit.local_log_files import log_files, take_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import apsw

    from proxy.audit.local_log import LocalLog
    from proxy.core.event import Head, LogEntry

MAX_BYTES = 1 << 40  # no bound: a log that was left behind is only emptied, and may be over this process's bound
RECENT_EVENTS = 8000  # what a busy worker writes between two rounds of its shipper
RECENT_CHARACTERS = 4 << 20


class RecentEvents:
    """The last events of a log, without a gap: its writer adds, its shipper reads and drops, each in its thread.

    The shipper then need not read them back. Bounded: where it does not keep up, the oldest are dropped, and read from
    the file. Nothing depends on it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[LogEntry] = deque()
        self._first = 1  # the number of the first event in it
        self._characters = 0

    def add(self, entries: Sequence[LogEntry], first: int) -> None:
        """Add `entries`, which are on disk and numbered from `first` on."""
        with self._lock:
            # Behind a gap the numbers would be wrong: begin anew, and let the shipper read the file up to here.
            if first != self._first + len(self._events):
                self._events.clear()
                self._first, self._characters = first, 0
            self._events.extend(entries)
            self._characters += sum([len(entry.body) for entry in entries])
            while len(self._events) > RECENT_EVENTS or self._characters > RECENT_CHARACTERS:
                self._drop_one()

    def after(self, seq: int, limit: int) -> Sequence[LogEntry] | None:
        """Return up to `limit` events after number `seq`; None where the next of them is not in memory."""
        with self._lock:
            start = seq + 1 - self._first
            return [*islice(self._events, start, start + limit)] if 0 <= start < len(self._events) else None

    def drop(self, last: int) -> None:
        with self._lock:
            while self._events and self._first <= last:
                self._drop_one()

    def _drop_one(self) -> None:
        self._characters -= len(self._events.popleft().body)
        self._first += 1


class LogSource(abc.ABC):
    """A log to be emptied. Methods wait for the disk, and raise apsw.Error or AuditUnavailableError."""

    ended = False  # whether nobody writes to it any more

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        self.path = path
        self.connection = connection
        self.writer = local_log_sql.read_head(connection).writer

    def head(self) -> Head:
        return local_log_sql.read_head(self.connection)

    def link_of(self, seq: int) -> str | None:
        """Return the link of an event that is still in the log; None where it was moved."""
        return local_log_sql.read_link(self.connection, seq)

    def read(self, limit: int, after: int = 0) -> Sequence[LogEntry]:
        """Return its oldest events, or those that come after a number."""
        return local_log_sql.page(self.connection, self.writer, after, limit)

    def note(self, problem: str | None) -> None:
        """Store why it is not emptied; None: it is again."""
        local_log_sql.note_problem(self.connection, problem)

    @abc.abstractmethod
    def discard(self, last: int, rejected: Mapping[int, str]) -> None:
        """Delete events up to number `last`, and set aside those that were rejected."""


class OwnSource(LogSource):
    """The log of this process: its own writer discards, so that the two never wait for each other."""

    def __init__(self, log: LocalLog, destination: str) -> None:
        super().__init__(log.path, local_log_sql.connect_reader(log.path))
        self._log = log
        self._moved = 0  # the last event that was discarded, as far as this object knows
        self._recent = log.recent = RecentEvents()
        try:
            local_log_sql.set_destination(self.connection, destination)
        except BaseException:
            self.connection.close()
            raise

    def read(self, limit: int, after: int = 0) -> Sequence[LogEntry]:
        """Return what was just written from memory, and everything else from the file."""
        recent = self._recent.after(after or self._moved, limit)
        return recent if recent is not None else super().read(limit, after)

    def discard(self, last: int, rejected: Mapping[int, str]) -> None:
        self._log.discard(last, rejected)
        self._moved = last
        self._recent.drop(last)


class LeftSource(LogSource):
    """A log that nobody writes to."""

    ended = True

    def __init__(self, path: Path, clock: float) -> None:
        super().__init__(path, local_log_sql.connect(path, MAX_BYTES))
        self._clock = clock

    def discard(self, last: int, rejected: Mapping[int, str]) -> None:
        local_log_sql.discard(self.connection, last, rejected, self._clock)


@contextlib.contextmanager
def left_behind(path: Path, destination: str, now: float, *, any_destination: bool) -> Iterator[LogSource | None]:
    """Lock a log for as long as the block lasts; yield None where it is in use, empty, or meant for another store."""
    held = take_file(path)
    if held is None:
        yield None
        return
    with held:
        source = LeftSource(path, now)
        with contextlib.closing(source.connection):
            state = local_log_sql.read_state(source.connection)
            meant = any_destination or state is None or state.destination in (None, destination)
            yield source if meant and state is not None and state.oldest is not None else None


def others(state_dir: Path, own: Path | None) -> list[Path]:
    return [path for path in log_files(state_dir) if path != own]
