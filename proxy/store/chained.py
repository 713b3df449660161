"""The chains of the events in a store: which writers there are, and each one's events in their order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proxy.events import Entry
from proxy.store.chain import Head
from proxy.store.event_text import FLAGS, MAX_NAME, NUMBERS, TEXTS, VALUES, PoisonError, readable
from proxy.store.steps import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.store.events import Events
    from proxy.store.steps import Row, Steps

CLOSE = 1e-3  # seconds; a database keeps microseconds
_VALUES = frozenset(VALUES)
_READ = ("kind", *TEXTS, *FLAGS, *NUMBERS, *VALUES, "result_size")
# From one writer to the next by the index, however many events each has.
_WRITERS = (
    "WITH RECURSIVE found (writer) AS (SELECT min(writer) FROM events UNION ALL "
    "SELECT (SELECT min(e.writer) FROM events e WHERE e.writer > found.writer) FROM found "
    "WHERE found.writer IS NOT NULL) SELECT writer FROM found WHERE writer IS NOT NULL"
)
_PAGE = (
    f"SELECT body, writer, seq, chain, event_id, ts, {', '.join(_READ)} FROM events "
    "WHERE writer = $1 AND (seq, event_id) > ($2, $3) ORDER BY seq, event_id LIMIT $4"
)
_LOOSE = "SELECT event_id FROM events WHERE writer IS NULL OR seq IS NULL OR chain IS NULL ORDER BY ts LIMIT 1"
_LAST_BEFORE = (
    "SELECT seq, chain FROM events WHERE writer = $1 AND seq = "
    "(SELECT max(seq) FROM events WHERE writer = $1 AND ts < $2) LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class Chained:
    """An event of a chain: what was stored, and, where that is known, which column says another thing than its text."""

    entry: Entry
    event_id: str
    wrong_column: str | None = None


async def writers(store: Events) -> list[str]:
    """Give the writers that have events in a store."""
    return [row[0] for row in await _rows(store, _WRITERS)]


async def page(store: Events, writer: str, after: tuple[int, str], limit: int) -> list[Chained]:
    """Give a writer's events behind the one with that number and id, in the order of their numbers."""
    return [_chained(row) for row in await _rows(store, _PAGE, writer, *after, limit)]


async def unchained(store: Events) -> str | None:
    """Give the id of an event that belongs to no chain, if there is one."""
    found = await _rows(store, _LOOSE)
    return found[0][0] if found else None


async def last_before(store: Events, before: float) -> list[Head]:
    """Give, for each writer that has events from before a time, the last of them."""
    heads = []
    for writer in await writers(store):
        for seq, chain in await _rows(store, _LAST_BEFORE, writer, float(before)):
            if chain is not None:
                heads.append(Head(writer, seq, chain))
    return heads


async def _rows(store: Events, sql: str, *values: object) -> Sequence[Row]:
    def steps() -> Steps[Sequence[Row]]:
        return (yield Query(sql, values))

    return await store.database.read(steps)


def _chained(row: Row) -> Chained:
    body, writer, seq, chain, event_id, time, *columns = row
    wrong = None if _agree(body, event_id, time, columns) else _wrong_column(body, event_id, time, columns)
    return Chained(Entry(body, writer, seq, chain), event_id, wrong)


def _agree(body: str, event_id: str, time: float, columns: Sequence[Any]) -> bool:
    """Say whether columns are plainly what the text says, as those of almost all events are."""
    try:
        said = json.loads(body)
        if said["event_id"] != event_id or abs(time - said["time"]) > CLOSE:
            return False
        if type(said.get("jsonrpc_id")) is int:
            said["jsonrpc_id"] = str(said["jsonrpc_id"])
        return all(
            column == said.get(name) or (column is not None and name in _VALUES and json.loads(column) == said[name])
            for name, column in zip(_READ, columns, strict=True)
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False


def _wrong_column(body: str, event_id: str, time: float, columns: Sequence[Any]) -> str | None:
    """Give the column that says another thing than what a store makes of the text."""
    try:
        said: dict[str, Any] = json.loads(readable(body))
    except PoisonError:
        return "body"
    if event_id != said["event_id"] or abs(time - said["time"]) > CLOSE:
        return "event_id or ts"
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
    """Compare JSON values; a number that a database spells otherwise is the same number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return isinstance(one, (int, float)) and isinstance(other, (int, float)) and float(one) == float(other)
    return bool(one == other)
