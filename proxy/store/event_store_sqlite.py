"""Audit events in the embedded store."""

from __future__ import annotations

import itertools
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from proxy.audit.event_columns import COLUMNS, MAX_INTEGER, columns, encoded, is_place, segments
from proxy.store.database import Query
from proxy.store.event_store import Conditions, Events
from proxy.system.package_data import sql_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.audit.event import Entry
    from proxy.audit.hash_chain import Head
    from proxy.store.database import Steps
    from proxy.store.event_store import Read

PRUNE_ROWS = 5000
MAX_PATHS = 16
_PRUNE = (
    "DELETE FROM events WHERE rowid IN (SELECT rowid FROM events "
    "WHERE writer = $1 AND seq <= $2 ORDER BY seq LIMIT $3) RETURNING rowid"
)
_PRUNE_LOOSE = (
    "DELETE FROM events WHERE rowid IN (SELECT rowid FROM events "
    "WHERE (writer IS NULL OR seq IS NULL OR chain IS NULL) AND ts < $1 ORDER BY ts LIMIT $2) RETURNING rowid"
)


_ROWS = (32, 8, 1)
"""How many events a statement keeps: few statements, each of which lets other threads go first, and few kinds."""
_ROW = f"({', '.join('?' * (len(COLUMNS) + 4))})"


@cache
def _insert_sql(rows: int) -> str:
    return (sql_dir() / "sqlite_insert_events.sql").read_text().replace("{rows}", ", ".join([_ROW] * rows))


class SqliteEvents(Events):
    """An `events.EventStore` on SQLite."""

    day = "date(ts, 'unixepoch')"
    each_redaction = "CROSS JOIN json_each(CASE json_type(redactions) WHEN 'array' THEN redactions END) AS found"
    detector = "CASE found.type WHEN 'object' THEN found.value ->> 'detector' END"
    record_only = "CASE found.type WHEN 'object' THEN json_type(found.value, '$.record_only') = 'true' END"

    async def prepare(self, now: float) -> None:
        """Do nothing: a file has no partitions."""

    async def prune(self, before: float, heads: Sequence[Head] = ()) -> int:
        """Delete by and by, and give the room back to the disk."""
        gone = await self._delete(_PRUNE_LOOSE, float(before))
        for head in heads:
            gone += await self._delete(_PRUNE, head.writer, head.seq)
        return gone

    async def _delete(self, sql: str, *values: Any) -> int:
        def some(_: bool) -> Steps[int]:  # noqa: FBT001  as Database says
            deleted = len((yield Query(sql, (*values, PRUNE_ROWS))))
            yield Query("PRAGMA incremental_vacuum")
            return deleted

        gone = deleted = await self.database.write(some)
        while deleted == PRUNE_ROWS:
            deleted = await self.database.write(some)
            gone += deleted
        return gone

    def _read(self, entry: Entry) -> list[Any]:
        return columns(entry.body, entry.said)

    async def _insert(self, reads: Sequence[Read]) -> None:
        def steps(_: bool) -> Steps[None]:  # noqa: FBT001  as Database says
            place = 0
            for count in _ROWS:
                while len(reads) - place >= count:
                    values: list[Any] = []
                    for entry, read in reads[place : place + count]:
                        values += read
                        values += (entry.writer, entry.seq, entry.chain, entry.body)
                    yield Query(_insert_sql(count), tuple(values))
                    place += count

        await self.database.write(steps)

    def _like(self, conditions: Conditions, column: str, pattern: str) -> str:
        escaped = pattern.replace("[", "[[]").replace("?", "[?]")
        return f"{column} GLOB {conditions.bind(escaped)}"

    def _has_argument(self, conditions: Conditions, path: str, value: str) -> str:
        marks = [conditions.bind(one) for one in itertools.islice(_paths(segments(path)), MAX_PATHS)]
        fits = [_equals(conditions, mark, one) for mark in marks for one in encoded(value)]
        return f"({' OR '.join(fits)})"


def _paths(parts: Sequence[str]) -> Iterator[str]:
    """Return the JSON paths that may be meant: a number is a place in a list, or a name."""
    ways = []
    for part in parts:
        name = f".{json.dumps(part, ensure_ascii=False)}"
        ways.append((f"[{int(part)}]", name) if is_place(part) else (name,))
    return ("$" + "".join(steps) for steps in itertools.product(*ways))


def _equals(conditions: Conditions, path: str, value: Any) -> str:
    kind = f"json_type(arguments, {path})"
    if value is None or isinstance(value, bool):
        return f"{kind} = {conditions.bind(json.dumps(value))}"
    if isinstance(value, int) and not -MAX_INTEGER <= value < MAX_INTEGER:
        return f"(arguments -> {path}) = {conditions.bind(str(value))}"
    kinds = "('text')" if isinstance(value, str) else "('integer', 'real')"
    return f"({kind} IN {kinds} AND json_extract(arguments, {path}) = {conditions.bind(value)})"
