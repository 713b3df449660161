"""The store of audit events: what is the same on every database."""

from __future__ import annotations

import abc
import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from proxy.audit.event import CallRecord, Cursor, DayStats, DenialStats, Entry, SecretStats, Stats, ToolStats, Written
from proxy.audit.event_columns import MAX_NAME, PoisonError, clean, time_of
from proxy.errors import StoreRefusedError
from proxy.store.database import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.audit.event import Filter
    from proxy.audit.hash_chain import Head
    from proxy.store.database import Database, Row, Steps

STATS_ROWS = 1000
_CALL = tuple(field.name for field in fields(CallRecord))
_JSON_LISTS = ("rules", "shadow_rules", "redactions")
_FLAGS = ("authenticated", "is_error")
_ENTRY = "ts, event_id, body, writer, seq, chain"
_FIND = f"SELECT {_ENTRY} FROM events WHERE call_id = $1 OR event_id = $1 ORDER BY ts, event_id"

type Read = tuple[Entry, Any]
"""An entry, and what `_read` makes of its text; None where the database reads the text itself."""


class Conditions:
    """Conditions of a query, and the values in them."""

    def __init__(self) -> None:
        self.clauses: list[str] = []
        self.values: list[Any] = []

    def bind(self, value: Any) -> str:
        """Return the mark that stands for `value`."""
        self.values.append(value)
        return f"${len(self.values)}"

    def __str__(self) -> str:
        return " AND ".join(self.clauses) or "true"


class Events(abc.ABC):
    """Implements `events.EventStore` on a database, but for what databases do each in their own way."""

    trusting = False
    """Whether the database reads columns from texts by itself, as long as it can."""
    ways = 1
    """How many batches are well written at once."""
    day: str
    """The day of an event, in SQL."""
    each_redaction: str
    """What to join for each redaction of an event, in SQL."""
    detector: str
    """The detector of such a redaction, in SQL."""
    record_only: str
    """Whether nothing but the record of it was masked, in SQL."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def write(self, entries: Sequence[Entry]) -> Written:
        """Keep a batch, and tell what is poison in it."""
        if self.trusting:
            try:
                await self._insert([(entry, None) for entry in entries])
            except StoreRefusedError:
                pass  # one of them is odd; which one is found below
            else:
                return Written(len(entries))
        whole, poison = self._read_all(entries)
        await self._insert_but_poison(whole, poison)
        return Written(len(entries) - len(poison), poison)

    def _read_all(self, entries: Sequence[Entry]) -> tuple[dict[int, Read], dict[int, str]]:
        """Read the entries of a batch; return those that are events, and why the others are none."""
        whole: dict[int, Read] = {}
        poison: dict[int, str] = {}
        for number, entry in enumerate(entries):
            try:
                whole[number] = entry, self._read(entry)
            except PoisonError as error:
                poison[number] = str(error)
        return whole, poison

    async def _insert_but_poison(self, reads: dict[int, Read], poison: dict[int, str]) -> None:
        """Insert, by halves where the database refuses, until only what it refuses is left."""
        if not reads:
            return
        try:
            await self._insert(list(reads.values()))
        except StoreRefusedError as error:
            numbers = list(reads)
            if len(numbers) == 1:
                poison[numbers[0]] = str(error)
                return
            for half in (numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]):
                await self._insert_but_poison({number: reads[number] for number in half}, poison)

    async def calls(self, where: Filter, limit: int = 100, before: Cursor | None = None) -> Sequence[CallRecord]:
        """Return tool calls that fit, newest first."""
        conditions = self._conditions(where, "time")
        if before is not None:
            conditions.clauses.append(_beyond(conditions, "time", "<", before))
        sql = (
            f"SELECT {', '.join(_CALL)} FROM tool_calls WHERE {conditions} "
            f"ORDER BY time DESC, event_id DESC LIMIT {conditions.bind(limit)}"
        )
        return [_call(row) for row in await self._rows(sql, *conditions.values)]

    async def events(
        self, where: Filter, limit: int = 1000, after: Cursor | None = None
    ) -> Sequence[tuple[Cursor, Entry]]:
        """Return events of every kind that fit, oldest first."""
        conditions = self._conditions(where, "ts")
        if after is not None:
            conditions.clauses.append(_beyond(conditions, "ts", ">", after))
        sql = f"SELECT {_ENTRY} FROM events WHERE {conditions} ORDER BY ts, event_id LIMIT {conditions.bind(limit)}"
        return [(Cursor(row[0], row[1]), Entry(*row[2:])) for row in await self._rows(sql, *conditions.values)]

    async def find(self, event_or_call_id: str) -> Sequence[Entry]:
        """Return every event of a call, or the one event of that id."""
        return [Entry(*row[2:]) for row in await self._rows(_FIND, clean(event_or_call_id)[:MAX_NAME])]

    async def ids(self, prefix: str, limit: int = 2) -> Sequence[str]:
        """Return ids of calls, and of events outside calls, that begin so."""
        found = await self._ids(prefix, limit, time_of(prefix))
        return found or await self._ids(prefix, limit, None)

    async def _ids(self, prefix: str, limit: int, between: tuple[float, float] | None) -> Sequence[str]:
        conditions = Conditions()
        pattern = f"{clean(prefix)[:MAX_NAME].replace('*', '')}*"
        in_call, alone = (self._like(conditions, name, pattern) for name in ("call_id", "event_id"))
        conditions.clauses.append(f"({in_call} OR {alone})")
        for operator, moment in zip((">", "<"), between or (), strict=False):
            conditions.clauses.append(f"ts {operator} {conditions.bind(moment)}")
        sql = (
            f"SELECT DISTINCT CASE WHEN {in_call} THEN call_id ELSE event_id END FROM events "
            f"WHERE {conditions} ORDER BY 1 LIMIT {conditions.bind(limit)}"
        )
        return [row[0] for row in await self._rows(sql, *conditions.values)]

    async def count(self, where: Filter) -> int:
        """Count the events that fit."""
        conditions = self._conditions(where, "ts")
        rows = await self._rows(f"SELECT count(*) FROM events WHERE {conditions}", *conditions.values)
        return int(rows[0][0])

    async def stats(self, where: Filter) -> Stats:
        """Sum up the events that fit."""
        conditions = self._conditions(where, "ts")
        values = tuple(conditions.values)

        def steps() -> Steps[Stats]:
            ((count, first, last),) = yield Query(
                f"SELECT count(*), min(ts), max(ts) FROM events WHERE {conditions}", values
            )
            tools = yield Query(_TOOLS.format(conditions), values)
            denials = yield Query(_DENIALS.format(conditions), values)
            secrets = yield Query(
                _SECRETS.format(self.detector, self.record_only, self.each_redaction, conditions), values
            )
            days = yield Query(_DAYS.format(self.day, conditions), values)
            return Stats(
                events=count,
                first=first,
                last=last,
                tools=[ToolStats(*row) for row in tools],
                denials=[DenialStats(*row) for row in denials],
                secrets=[SecretStats(*row) for row in secrets],
                days=[DayStats(*row) for row in days],
            )

        return await self.database.read(steps)

    async def close(self) -> None:
        """Let go of the database."""
        await self.database.close()

    def _conditions(self, where: Filter, time: str) -> Conditions:
        made = Conditions()
        of = "events" if time == "ts" else "tool_calls"
        made.clauses.extend(_WITHOUT[of].format(made.bind(writer), made.bind(seq)) for writer, seq in where.without)
        for operator, moment in ((">=", where.since), ("<", where.until)):
            if moment is not None:
                made.clauses.append(f"{time} {operator} {made.bind(float(moment))}")
        for name in ("agent", "server", "tool", "decision", "rule"):
            wanted = getattr(where, name)
            if wanted is None:
                continue
            wanted = clean(wanted)[:MAX_NAME]
            if "*" in wanted:
                made.clauses.append(self._like(made, name, wanted))
            else:
                made.clauses.append(f"{name} = {made.bind(wanted)}")
        made.clauses.extend(self._has_argument(made, path, value) for path, value in where.arguments)
        return made

    async def _rows(self, sql: str, *values: object) -> Sequence[Row]:
        def steps() -> Steps[Sequence[Row]]:
            return (yield Query(sql, values))

        return await self.database.read(steps)

    @abc.abstractmethod
    async def prepare(self, now: float) -> None:
        """Make room for events to come."""

    @abc.abstractmethod
    async def prune(self, before: float, heads: Sequence[Head] = ()) -> int:
        """Delete the beginnings of chains, and what is of no chain and older; return how many events are gone."""

    @abc.abstractmethod
    def _read(self, entry: Entry) -> Any:
        """Return what the database needs to know of an event's text. Raises PoisonError where it is none."""

    @abc.abstractmethod
    async def _insert(self, reads: Sequence[Read]) -> None:
        """Keep entries, all or none. Raises StoreRefusedError where the database does not take one of them."""

    @abc.abstractmethod
    def _like(self, conditions: Conditions, column: str, pattern: str) -> str:
        """Return the condition that a column fits a pattern with `*`."""

    @abc.abstractmethod
    def _has_argument(self, conditions: Conditions, path: str, value: str) -> str:
        """Return the condition that the argument at a path has a value."""


_WITHOUT = {
    "events": "(writer IS DISTINCT FROM {} OR coalesce(seq, 0) <= {})",
    "tool_calls": "NOT EXISTS (SELECT 1 FROM events w WHERE w.event_id = tool_calls.event_id "
    "AND w.ts = tool_calls.time AND w.writer = {} AND w.seq > {})",
}
_TOOLS = (
    "SELECT server, tool, count(*) FILTER (WHERE kind = 'decided'), "
    "count(*) FILTER (WHERE kind = 'decided' AND decision = 'deny'), "
    "count(*) FILTER (WHERE kind = 'completed' AND is_error), count(*) FILTER (WHERE kind = 'completed'), "
    "avg(total_ms) FILTER (WHERE kind = 'completed'), max(total_ms) FILTER (WHERE kind = 'completed') "
    "FROM events WHERE method = 'tools/call' AND kind IN ('decided', 'completed') AND {} "
    f"GROUP BY server, tool ORDER BY 3 DESC, server, tool LIMIT {STATS_ROWS}"
)
_DENIALS = (
    "SELECT reason, rule, count(*) FROM events WHERE kind = 'decided' AND decision = 'deny' AND {} "
    f"GROUP BY reason, rule ORDER BY 3 DESC, reason, rule LIMIT {STATS_ROWS}"
)
_SECRETS = (
    "SELECT server, tool, {}, count(*), count(*) FILTER (WHERE {}) FROM events {} "
    "WHERE redactions IS NOT NULL AND {} "
    f"GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT {STATS_ROWS}"
)
_DAYS = (
    "SELECT {}, count(*), count(*) FILTER (WHERE decision = 'deny') "
    "FROM events WHERE kind = 'decided' AND method = 'tools/call' AND {} GROUP BY 1 ORDER BY 1"
)


def _beyond(conditions: Conditions, time: str, operator: str, cursor: Cursor) -> str:
    marks = conditions.bind(float(cursor.time)), conditions.bind(cursor.event_id)
    return f"({time}, event_id) {operator} ({marks[0]}, {marks[1]})"


def _call(row: Row) -> CallRecord:
    found = dict(zip(_CALL, row, strict=True))
    found["arguments"] = json.loads(found["arguments"]) if found["arguments"] is not None else None
    for name in _JSON_LISTS:
        found[name] = tuple(json.loads(found[name])) if found[name] is not None else ()
    for name in _FLAGS:
        found[name] = bool(found[name]) if found[name] is not None else None
    return CallRecord(**found)
