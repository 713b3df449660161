"""The chains of the events in a store: which writers there are, and each one's events in their order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proxy.audit.event import Entry
from proxy.audit.event_columns import FLAGS, MAX_NAME, NUMBERS, TEXTS, VALUES, PoisonError, readable
from proxy.audit.hash_chain import Head
from proxy.store.database import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.store.database import Row, Steps
    from proxy.store.event_store import Events

CLOSE = 1e-3  # seconds; a database keeps microseconds
_VALUES = frozenset(VALUES)
_READ = ("kind", *TEXTS, *FLAGS, *NUMBERS, *VALUES, "result_size")
# From one writer to the next by the index, however many events each has.
_WRITERS = (
    "WITH RECURSIVE found (writer) AS (SELECT min(writer) FROM events UNION ALL "
    "SELECT (SELECT min(e.writer) FROM events e WHERE e.writer > found.writer) FROM found "
    "WHERE found.writer IS NOT NULL) SELECT writer FROM found WHERE writer IS NOT NULL"
)
# By the time too: who puts in another row under an event's id and number gives it another time.
_PAGE = (
    f"SELECT body, writer, seq, chain, event_id, ts, {', '.join(_READ)} FROM events "
    "WHERE writer = $1 AND seq >= $2 AND (seq, event_id, ts) > ($2, $3, $4) ORDER BY seq, event_id, ts LIMIT $5"
)
_LOOSE = "SELECT event_id FROM events WHERE writer IS NULL OR seq IS NULL OR chain IS NULL ORDER BY ts LIMIT 1"
_FIRST = "SELECT ts FROM events WHERE writer = $1 ORDER BY seq LIMIT 1"
_FIRST_YOUNG = "SELECT min(seq) FROM events WHERE writer = $1 AND ts >= $2 AND ts < $3"
_LAST_OLD = (
    "SELECT seq, chain FROM events WHERE writer = $1 AND seq < $2 AND ts < $3 AND chain IS NOT NULL "
    "ORDER BY seq DESC LIMIT 1"
)
_LAST = (1 << 63) - 1

type Place = tuple[int, str, float]
"""An event's number, id and time."""


@dataclass(frozen=True, slots=True)
class Chained:
    """An event of a chain: what was stored, and, where that is known, which column says another thing than its text."""

    entry: Entry
    event_id: str
    wrong_column: str | None = None
    time: float = 0.0

    @property
    def place(self) -> Place:
        """Where it stands among its writer's events."""
        return self.entry.seq or 0, self.event_id, self.time


async def writers(store: Events) -> list[str]:
    """Return the writers that have events in a store."""
    return [row[0] for row in await _rows(store, _WRITERS)]


async def page(store: Events, writer: str, after: Place, limit: int) -> list[Chained]:
    """Return a writer's events behind the one at that place, in the order of their numbers."""
    return [_chained(row) for row in await _rows(store, _PAGE, writer, *after, limit)]


async def unchained(store: Events) -> str | None:
    """Return the id of an event that belongs to no chain, if there is one."""
    found = await _rows(store, _LOOSE)
    return found[0][0] if found else None


async def last_old(store: Events, writer: str, before: float, future: float, step: float | None) -> Head | None:
    """Return the last event of a chain's beginning that happened before a time; None where its first event did not.

    What says that it happened in the `future` says nothing of what comes before it: a clock was wrong. With a
    `step` the beginning is no longer than that many seconds.
    """
    if step is not None:
        before = min(before, *(time + step for (time,) in await _rows(store, _FIRST, writer)))
    ((young,),) = await _rows(store, _FIRST_YOUNG, writer, float(before), float(future))
    found = await _rows(store, _LAST_OLD, writer, _LAST if young is None else young, float(before))
    return Head(writer, *found[0]) if found else None


async def _rows(store: Events, sql: str, *values: object) -> Sequence[Row]:
    def steps() -> Steps[Sequence[Row]]:
        return (yield Query(sql, values))

    return await store.database.read(steps)


def _chained(row: Row) -> Chained:
    body, writer, seq, chain, event_id, time, *columns = row
    wrong = None if _agree(body, event_id, time, columns) else _wrong_column(body, event_id, time, columns)
    return Chained(Entry(body, writer, seq, chain), event_id, wrong, time)


def _agree(body: str, event_id: str, time: float, columns: Sequence[Any]) -> bool:
    """Return whether columns are plainly what the text says, as those of almost all events are."""
    try:
        said = json.loads(body)
        if said["event_id"] != event_id or abs(time - said["time"]) > CLOSE:
            return False
        if type(said.get("jsonrpc_id")) is int:
            said["jsonrpc_id"] = str(said["jsonrpc_id"])
        return all(
            column == said.get(name)
            or (column is not None and name in _VALUES and _equal(json.loads(column), said[name]))
            for name, column in zip(_READ, columns, strict=True)
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False


def _wrong_column(body: str, event_id: str, time: float, columns: Sequence[Any]) -> str | None:
    """Return the column that says another thing than what a store makes of the text."""
    try:
        said: dict[str, Any] = json.loads(readable(body))
    except PoisonError:
        return "body"
    if event_id != said["event_id"] or abs(time - said["time"]) > CLOSE:
        return "event_id or ts"
    said |= {name: str(said[name]) for name in TEXTS if type(said.get(name)) is int}
    said["proposal_id"] = said.get("proposal_id") or _text(said.get("detail"), "proposal_id")
    pairs = zip(_READ, columns, strict=True)
    return next((name for name, column in pairs if not _same(name, column, said.get(name))), None)


def _text(detail: Any, name: str) -> str | None:
    value = detail.get(name) if isinstance(detail, dict) else None
    return None if value is None else value if isinstance(value, str) else json.dumps(value)


def _same(name: str, column: Any, said: Any) -> bool:
    if name in VALUES:
        return _equal(None if column is None else json.loads(column), said)
    if column is None or said is None:
        return column is None and said is None
    if name in FLAGS:
        return bool(column) is said
    return bool(column == (said[:MAX_NAME] if isinstance(said, str) else said))


def _equal(one: Any, other: Any) -> bool:
    """Compare JSON values; a number that a database spells otherwise is the same number, and true is none."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        return isinstance(one, (int, float)) and isinstance(other, (int, float)) and float(one) == float(other)
    return bool(one == other)
