"""The chains of the events in a store: which writers there are, and each one's events in their order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proxy.audit.event import Entry
from proxy.audit.event_columns import FLAGS, MAX_NAME, NUMBERS, TEXTS, VALUES, PoisonError, readable
from proxy.audit.hash_chain import Head
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.store.database import Row
    from proxy.store.event_store import Events

SQL = Queries("chain")
CLOSE = 1e-3  # seconds; a database keeps microseconds
_VALUES = frozenset(VALUES)
_READ = ("kind", *TEXTS, *FLAGS, *NUMBERS, *VALUES, "result_size")
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
    return [row[0] for row in await store.database.fetch(SQL["list_writers"])]


async def page(store: Events, writer: str, after: Place, limit: int) -> list[Chained]:
    """Return a writer's events behind the one at that place, in the order of their numbers."""
    return [_chained(row) for row in await store.database.fetch(SQL["chain_page"], writer, *after, limit)]


async def unchained(store: Events) -> str | None:
    """Return the id of an event that belongs to no chain, if there is one."""
    found = await store.database.fetch(SQL["find_unchained"])
    return found[0][0] if found else None


async def last_old(store: Events, writer: str, before: float, future: float, step: float | None) -> Head | None:
    """Return the last event of a chain's beginning that happened before a time; None where its first event did not.

    What says that it happened in the `future` says nothing of what comes before it: a clock was wrong. With a
    `step` the beginning is no longer than that many seconds.
    """
    if step is not None:
        before = min(before, *(time + step for (time,) in await store.database.fetch(SQL["first_time"], writer)))
    ((young,),) = await store.database.fetch(SQL["first_young"], writer, float(before), float(future))
    until = _LAST if young is None else young
    found = await store.database.fetch(SQL["last_old"], writer, until, float(before))
    return Head(writer, *found[0]) if found else None


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
