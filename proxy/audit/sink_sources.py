"""The logs as one sink reads them: from where it is, with what the store has already."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from proxy.audit import local_log_sql, log_sinks
from proxy.audit.local_log_files import take_file
from proxy.audit.ship_sources import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    import apsw

    from proxy.audit.local_log import LocalLog
    from proxy.audit.log_sinks import Gap
    from proxy.core.event import LogEntry


class SinkSource:
    """A log, and where one sink is in it. Methods wait for the disk, and raise apsw.Error or AuditUnavailableError."""

    def __init__(self, name: str, path: Path, connection: apsw.Connection, log: LocalLog | None = None) -> None:
        self.path = path
        self._name = name
        self._connection = connection
        self._log = log  # the log of this process, whose own thread writes; None: nobody writes to it any more
        self._writer = local_log_sql.read_head(connection).writer

    def read(self, limit: int) -> Sequence[LogEntry]:
        """Return the oldest events that the sink has not taken."""
        after = log_sinks.position(self._connection, self._name)
        if after is None:
            return ()  # it is no sink of this log, or was removed
        return local_log_sql.page(self._connection, self._writer, after, limit, kept=True)

    def taken(self, last: int, refused: Mapping[int, tuple[str | None, str]]) -> None:
        """Note that the sink has all up to number `last`, but what it refused; delete what nobody needs."""

        def act(connection: apsw.Connection) -> None:
            log_sinks.mark_taken(connection, self._name, last, refused, time.time())
            local_log_sql.delete_moved(connection)

        self._change(act)

    def note(self, problem: str | None) -> None:
        self._change(lambda connection: log_sinks.note_problem(connection, self._name, problem))

    def untold(self) -> list[tuple[int, Gap]]:
        return log_sinks.untold(self._connection, self._name)

    def told(self, keys: Sequence[int]) -> None:
        self._change(lambda connection: log_sinks.mark_told(connection, keys))

    def close(self) -> None:
        self._connection.close()

    def _change(self, act: Callable[[apsw.Connection], object]) -> None:
        def whole(connection: apsw.Connection) -> None:
            with local_log_sql.change(connection):
                act(connection)

        if self._log is not None:
            self._log.change(whole)
        else:
            whole(self._connection)


def own_source(name: str, log: LocalLog) -> SinkSource:
    return SinkSource(name, log.path, local_log_sql.connect_reader(log.path), log)


@contextlib.contextmanager
def left_for_sink(name: str, path: Path) -> Iterator[SinkSource | None]:
    """Lock a log that nobody writes to while the block lasts; yield None where it is in use, or has nothing for it."""
    with contextlib.closing(local_log_sql.connect_reader(path)) as connection:
        known = log_sinks.has_sinks(connection) and log_sinks.position(connection, name) is not None
    held = take_file(path) if known else None
    if held is None:
        yield None
        return
    with held, contextlib.closing(local_log_sql.connect(path, MAX_BYTES)) as connection:
        yield SinkSource(name, path, connection)


def register(log: LocalLog, keeps: Mapping[str, int | None]) -> list[str]:
    """Note the sinks of a log, before the first event is shipped from it; return those that are none any more."""
    removed: list[str] = []

    def act(connection: apsw.Connection) -> None:
        with local_log_sql.change(connection):
            log_sinks.add(connection, keeps)
            removed.extend(log_sinks.remove_others(connection, keeps))
            local_log_sql.delete_moved(connection)

    log.change(act)
    return removed


def forget_others(path: Path, names: Collection[str]) -> list[str]:
    """Forget the sinks of a log that nobody writes to, but these; return which. Raises apsw.Error or OSError."""
    with contextlib.closing(local_log_sql.connect_reader(path)) as connection:
        if {one.name for one in log_sinks.states(connection)} <= set(names):
            return []
    if (held := take_file(path)) is None:
        return []
    with (
        held,
        contextlib.closing(local_log_sql.connect(path, MAX_BYTES)) as connection,
        local_log_sql.change(connection),
    ):
        removed = log_sinks.remove_others(connection, names)
        local_log_sql.delete_moved(connection)
        return removed
