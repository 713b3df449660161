"""The sinks of one local log: how far each has come, and what was let go.

Every function is given a connection of the log; those that write are called within a transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import apsw

SQL = Queries("log_sinks")
AWAY = "the sink was away for longer than its backlog"
FULL = "the local log was half full"


@dataclass(frozen=True, slots=True)
class LogSink:
    """How far a sink has come with one log."""

    name: str
    moved: int
    keeps: int | None  # how many events are kept for it alone; None: it is required, and all are
    moved_at: float | None
    problem: str | None
    lost: int
    backlog: int
    oldest: str | None  # the text of the oldest event that it has not


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that a sink did not get: their numbers in the log, the ids of the first and the last, and why."""

    sink: str
    first: int
    last: int
    first_id: str | None
    last_id: str | None
    reason: str

    @property
    def count(self) -> int:
        return self.last - self.first + 1


def add(connection: apsw.Connection, keeps: Mapping[str, int | None]) -> None:
    """Note which sinks there are, and how many events each may hold back.

    A sink that is new begins with what is not in the store yet.
    """
    for name, number in keeps.items():
        connection.execute(SQL["add_sink"], {"name": name, "keeps": number})


def remove_others(connection: apsw.Connection, names: Collection[str]) -> list[str]:
    """Forget every sink but these; return which were forgotten."""
    gone = [name for (name,) in _rows(connection, SQL["list_names"]) if name not in names]
    connection.executemany(SQL["remove_sink"], [(name,) for name in gone])
    return gone


def has_sinks(connection: apsw.Connection) -> bool:
    """Return whether the log has the tables: one of an older version has not."""
    return bool(_rows(connection, SQL["has_sink_table"]))


def position(connection: apsw.Connection, name: str) -> int | None:
    """Return the number of the last event that a sink took; None where it is no sink of this log."""
    found = _rows(connection, SQL["position"], name)
    return found[0][0] if found else None


def mark_taken(
    connection: apsw.Connection, name: str, last: int, refused: Mapping[int, tuple[str | None, str]], now: float
) -> None:
    """Note that a sink has the events up to number `last`, but those that it refused: by number, id and reason."""
    for seq, (event_id, reason) in sorted(refused.items()):
        _note_gap(connection, Gap(name, seq, seq, event_id, event_id, reason), now)
    connection.execute(SQL["mark_taken"], {"name": name, "last": last, "now": now})


def let_go(connection: apsw.Connection, now: float) -> None:
    """Let events go that are kept for a sink that is not required: past its bound, and all in a log that is half full.

    So a sink that is away for long makes no log full, and no call is refused for it.
    """
    for name, moved, upto in _rows(connection, SQL["over_bound"]):
        _note_gap(connection, _gap(connection, name, moved + 1, upto, AWAY), now)
    if _rows(connection, SQL["list_names"]) and _is_half_full(connection):
        for name, moved, upto in _rows(connection, SQL["kept_for_optional"]):
            _note_gap(connection, _gap(connection, name, moved + 1, upto, FULL), now)


def untold(connection: apsw.Connection, name: str) -> list[tuple[int, Gap]]:
    """Return gaps of a sink that are closed and were not told yet, each with its key."""
    return [(key, Gap(name, *rest)) for key, *rest in _rows(connection, SQL["untold_gaps"], name)]


def mark_told(connection: apsw.Connection, keys: Sequence[int]) -> None:
    connection.executemany(SQL["mark_told"], [(key,) for key in keys])
    connection.execute(SQL["forget_gaps"])


def note_problem(connection: apsw.Connection, name: str, problem: str | None) -> None:
    connection.execute(SQL["set_problem"], (problem, name))


def states(connection: apsw.Connection) -> list[LogSink]:
    return [LogSink(*row) for row in _rows(connection, SQL["states"])] if has_sinks(connection) else []


def gaps(connection: apsw.Connection, limit: int) -> list[tuple[Gap, float]]:
    """Return the last gaps, newest first, and when each was noted."""
    if not has_sinks(connection):
        return []
    return [(Gap(*row[:-1]), row[-1]) for row in _rows(connection, SQL["gaps"], limit)]


def _is_half_full(connection: apsw.Connection) -> bool:
    ((pages,),) = _rows(connection, "PRAGMA page_count")
    ((free,),) = _rows(connection, "PRAGMA freelist_count")
    ((most,),) = _rows(connection, "PRAGMA max_page_count")
    return 2 * (pages - free) > most  # type: ignore[no-any-return]


def _gap(connection: apsw.Connection, name: str, first: int, last: int, reason: str) -> Gap:
    return Gap(name, first, last, _event_id(connection, first), _event_id(connection, last), reason)


def _event_id(connection: apsw.Connection, seq: int) -> str | None:
    found = _rows(connection, SQL["event_id"], seq)
    return found[0][0] if found and isinstance(found[0][0], str) else None


def _note_gap(connection: apsw.Connection, gap: Gap, now: float) -> None:
    names = ("sink", "first", "last", "first_id", "last_id", "reason")
    values: dict[str, Any] = {name: getattr(gap, name) for name in names} | {"now": now}
    connection.execute(SQL["let_go"], {"name": gap.sink, "last": gap.last, "count": gap.count})
    connection.execute(SQL["extend_gap"], {name: value for name, value in values.items() if name != "first_id"})
    if not connection.changes():
        connection.execute(SQL["add_gap"], values)


def _rows(connection: apsw.Connection, sql: str, *values: Any) -> list[Any]:
    rows: list[Any] = connection.execute(sql, values).fetchall()
    return rows
