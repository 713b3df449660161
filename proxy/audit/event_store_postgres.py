"""Audit events in Postgres: read by the server itself, indexed, in partitions of a day."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from proxy.audit.event_store import MOST_ROWS, Conditions, Events, Read
from proxy.audit.event_sums import MOST_HOURS, add_stats, by_hours, cut_to, edges, whole_hours
from proxy.audit.event_sums import MOST_ROWS as MOST_OF_PART
from proxy.core.event_columns import encoded, is_index, readable, segments
from proxy.errors import StoreRefusedError
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxy.core.event import Filter, Head, LogEntry, Stats
    from proxy.store.database import Transaction

DAYS_AHEAD = 14
RECENT_SECONDS = 7200.0
SEPARATOR = "\x1e"  # JSON writes it as an escape


class PostgresEvents(Events):
    sql = Queries("events", "events_postgres")
    reads_columns = True
    parallel_batches = 4

    async def prepare(self, now: float) -> None:
        today = dt.datetime.fromtimestamp(now, dt.UTC).date()
        days = today - dt.timedelta(days=1), today + dt.timedelta(days=DAYS_AHEAD)
        await self.database.execute(self.sql["make_partitions"], *days)
        await self.database.execute(self.sql["sum_counts"])

    async def sum_up_lately(self, now: float) -> None:
        """Sum up what was counted of late: every batch adds rows, and reports read them all."""
        await self.database.execute(self.sql["sum_hours"], float(now) - RECENT_SECONDS)

    async def stats(self, where: Filter) -> Stats:
        if not by_hours(where):
            return await super().stats(where)
        return await self.database.transaction(lambda connection: self._sum_hours(connection, where), read_only=True)

    async def _sum_hours(self, connection: Transaction, where: Filter) -> Stats:
        await connection.fetch(self.sql["one_moment"])
        spoilt = await self._spoilt_hours(connection, where)
        first, last, beside = edges(where, spoilt)
        if len(beside) > MOST_HOURS:
            return await self._sum_up(connection, where, MOST_ROWS)
        parts = [await self._sum_up(connection, part, MOST_OF_PART) for part in beside]
        parts.append(await whole_hours(connection, first, last, spoilt))
        return cut_to(add_stats(parts), MOST_ROWS)

    async def _spoilt_hours(self, connection: Transaction, where: Filter) -> list[float]:
        """Return the hours with events that do not count, because they are read from a log."""
        made = Conditions()
        past = [f"(writer = {made.bind(writer)} AND seq > {made.bind(seq)})" for writer, seq in where.without]
        if not past:
            return []
        sql = self.sql.compose("hours_past", past=" OR ".join(past))
        return [hour for (hour,) in await connection.fetch(sql, *made.values)]

    async def prune(self, before: float, heads: Sequence[Head] = ()) -> int:
        """Drop the days that are over and hold nothing else, and delete the rest of it."""
        up_to = [head.writer for head in heads], [head.seq for head in heads]
        gone = int((await self.database.execute(self.sql["drop_events"], float(before), *up_to))[0][0])
        await self.database.execute(self.sql["recount_events"], float(before))
        return gone

    def _read(self, entry: LogEntry) -> str:
        return readable(entry.body)

    async def _insert(self, reads: Sequence[Read]) -> None:
        entries = [entry for entry, _ in reads]
        bodies = SEPARATOR.join([entry.body for entry in entries])
        # A text with the separator in it, or an empty one, would shift every text behind it to another event's number.
        if bodies.count(SEPARATOR) != len(entries) - 1 or not all(entry.body for entry in entries):
            raise StoreRefusedError("a text in the batch is no JSON")
        columns = (
            bodies,
            _joined(read for _, read in reads),
            _joined(entry.writer for entry in entries),
            _joined(None if entry.seq is None else str(entry.seq) for entry in entries),
            _joined(entry.chain for entry in entries),
        )
        await self.database.execute(self.sql["insert_events"], *columns)

    def _like(self, conditions: Conditions, column: str, pattern: str) -> str:
        escaped = pattern.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
        return f"{column} LIKE {conditions.bind(escaped.replace('*', '%'))}"

    def _has_argument(self, conditions: Conditions, path: str, value: str) -> str:
        parts = segments(path)
        if any(map(is_index, parts)):
            # A number may be an index of a list or a name, which containment cannot say.
            at = f"arguments #> {conditions.bind(parts)}::text[]"
            fits = [f"{at} = {conditions.bind(json.dumps(one))}::jsonb" for one in encoded(value)]
        else:
            fits = [f"arguments @> {conditions.bind(json.dumps(_nest(parts, one)))}::jsonb" for one in encoded(value)]
        return f"({' OR '.join(fits)})"

    def _has_claim(self, conditions: Conditions, path: Sequence[str], value: str, *, listed: bool) -> str:
        wanted = _nest(path, [value] if listed else value)
        return self.sql.compose("has_claim", wanted=conditions.bind(json.dumps(wanted)))


def _joined(texts: Iterable[str | None]) -> str:
    return SEPARATOR.join([text or "" for text in texts])


def _nest(parts: Sequence[str], value: Any) -> Any:
    for part in reversed(parts):
        value = {part: value}
    return value
