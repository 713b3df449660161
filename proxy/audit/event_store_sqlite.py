"""Audit events in the embedded store: columns are read from the texts here, and rows are inserted many at a time."""

from __future__ import annotations

import itertools
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from proxy.audit.event_store import Conditions, Events, Read
from proxy.core.event_columns import COLUMNS, MAX_INTEGER, columns, encoded, is_index, segments
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.core.event import Head, LogEntry
    from proxy.store.database import Transaction

PRUNE_ROWS = 5000
MAX_PATHS = 16
# How many events a statement inserts. Few statements, because apsw gives up the GIL for each, and other threads go
# first; few kinds of them, so that all stay prepared.
_ROWS = (32, 8, 1)
_ROW = f"({', '.join('?' * (len(COLUMNS) + 4))})"


@cache
def _insert_sql(rows: int) -> str:
    return SqliteEvents.sql.compose("insert_events", rows=", ".join([_ROW] * rows))


class SqliteEvents(Events):
    sql = Queries("events", "events_sqlite")
    proxies_read = True
    # By the index of a name, all that match a pattern would be sorted by time before the first page is there.
    unindexed = "+"

    async def prepare(self, now: float) -> None:
        """Do nothing: a file has no partitions."""

    async def prune(self, before: float, heads: Sequence[Head] = ()) -> int:
        """Delete some rows at a time, and give the room back to the disk."""
        gone = await self._delete(self.sql["prune_unchained"], float(before))
        for head in heads:
            gone += await self._delete(self.sql["prune_chain"], head.writer, head.seq)
        return gone

    async def _delete(self, sql: str, *values: Any) -> int:
        async def some(connection: Transaction) -> int:
            deleted = len(await connection.fetch(sql, *values, PRUNE_ROWS))
            await connection.fetch(self.sql["vacuum"])
            return deleted

        gone, deleted = 0, PRUNE_ROWS
        while deleted == PRUNE_ROWS:  # each in a transaction of its own, between which others can write
            deleted = await self.database.transaction(some)
            gone += deleted
        return gone

    def _read(self, entry: LogEntry) -> list[Any]:
        return columns(entry.body, entry.columns)

    async def _insert(self, reads: Sequence[Read]) -> None:
        async def insert(connection: Transaction) -> None:
            offset = 0
            for count in _ROWS:
                while len(reads) - offset >= count:
                    values: list[Any] = []
                    for entry, read in reads[offset : offset + count]:
                        values += read
                        values += (entry.writer, entry.seq, entry.chain, entry.body)
                    await connection.fetch(_insert_sql(count), *values)
                    offset += count

        await self.database.transaction(insert)

    def _like(self, conditions: Conditions, column: str, pattern: str) -> str:
        escaped = pattern.replace("[", "[[]").replace("?", "[?]")
        return f"{column} GLOB {conditions.bind(escaped)}"

    def _has_argument(self, conditions: Conditions, path: str, value: str) -> str:
        marks = [conditions.bind(one) for one in itertools.islice(_paths(segments(path)), MAX_PATHS)]
        fits = [_equals(conditions, mark, one) for mark in marks for one in encoded(value)]
        return f"({' OR '.join(fits)})"

    def _has_claim(self, conditions: Conditions, path: Sequence[str], value: str, *, listed: bool) -> str:  # noqa: ARG002
        at = "$" + "".join(f".{json.dumps(part, ensure_ascii=False)}" for part in path)
        return self.sql.compose("has_claim", path=conditions.bind(at), value=conditions.bind(value))


def _paths(parts: Sequence[str]) -> Iterator[str]:
    """Return the JSON paths that may be meant: a number is an index of a list, or a name."""
    choices = []
    for part in parts:
        name = f".{json.dumps(part, ensure_ascii=False)}"
        choices.append((f"[{int(part)}]", name) if is_index(part) else (name,))
    return ("$" + "".join(steps) for steps in itertools.product(*choices))


def _equals(conditions: Conditions, path: str, value: Any) -> str:
    kind = f"json_type(arguments, {path})"
    if value is None or isinstance(value, bool):
        return f"{kind} = {conditions.bind(json.dumps(value))}"
    if isinstance(value, int) and not -MAX_INTEGER <= value < MAX_INTEGER:
        return f"(arguments -> {path}) = {conditions.bind(str(value))}"
    kinds = "('text')" if isinstance(value, str) else "('integer', 'real')"
    return f"({kind} IN {kinds} AND json_extract(arguments, {path}) = {conditions.bind(value)})"
