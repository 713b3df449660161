"""The store of audit events: what is the same on every database."""

from __future__ import annotations

import abc
import json
import re
from dataclasses import fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from proxy.audit.call_event import CallEvent, call_event
from proxy.core.event import (
    CallRecord,
    Cursor,
    DayStats,
    DenialStats,
    Filter,
    Head,
    LogEntry,
    SecretStats,
    Stats,
    ToolStats,
    Written,
)
from proxy.core.event_columns import MAX_NAME, PoisonError, claim_path, clean, time_of
from proxy.errors import StoreRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.store.database import Database, Row, Transaction
    from proxy.store.queries import Queries

_LIKE = re.compile(r"[\\%_]")
_ESCAPED = r"\\\g<0>"
_CALL = tuple(field.name for field in fields(CallRecord))

_OF_CALLS = ("decided", "completed")
MOST_ROWS = 1000  # of each table of `stats`

type Read = tuple[LogEntry, Any]  # an entry, and what `_read` returns for it; None where the database reads the text


class Conditions:
    """Conditions of a query, and the values in them. Every value is bound: agents choose what is searched for."""

    def __init__(self) -> None:
        self.clauses: list[str] = []
        self.values: list[Any] = []

    def bind(self, value: Any) -> str:
        """Return the mark that stands for `value` in the statement."""
        self.values.append(value)
        return f"${len(self.values)}"

    def __str__(self) -> str:
        return " AND ".join(self.clauses) or "true"


class Events(abc.ABC):
    """Stores audit events, once each; subclasses add what each database does in its own way.

    Every method raises StoreUnavailableError where the store cannot be reached or does not answer in time, and nothing
    else that a caller should expect.
    """

    sql: Queries  # the statements of this kind of database
    reads_columns = False  # whether the database itself reads columns from texts, and refuses a batch if it cannot
    unindexed = ""  # what in front of a column keeps an index of it from being used
    proxies_read = False  # whether a proxy may read events; on a shared database it may have the right to INSERT alone
    parallel_batches = 1  # how many batches may be written at once with profit

    def __init__(self, database: Database) -> None:
        self.database = database

    async def write(self, entries: Sequence[LogEntry]) -> Written:
        """Store a batch, durably when this returns; events that are there already are left as they are.

        An entry that is no event, or that the database does not take, is returned as poison and keeps no other out.
        """
        if self.reads_columns:
            try:
                await self._insert([(entry, None) for entry in entries])
            except StoreRefusedError:
                pass  # the batch is whole or not at all, so which entry it was is found below
            else:
                return Written(len(entries))
        whole: dict[int, Read] = {}
        poison: dict[int, str] = {}
        for number, entry in enumerate(entries):
            try:
                whole[number] = entry, self._read(entry)
            except PoisonError as error:
                poison[number] = str(error)
        await self._insert_but_poison(whole, poison)
        return Written(len(entries) - len(poison), poison)

    async def _insert_but_poison(self, reads: dict[int, Read], poison: dict[int, str]) -> None:
        """Insert, by halves where the database refuses, so that one bad entry keeps no other out."""
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
        """Return tool calls that match, newest first."""
        conditions = self._conditions(where, "time")
        if before is not None:
            conditions.clauses.append(_beyond(conditions, "time", "<", before))
        return [_call(row) for row in await self._fetch("list_calls", conditions, limit=conditions.bind(limit))]

    async def events(
        self, where: Filter, limit: int = 1000, after: Cursor | None = None
    ) -> Sequence[tuple[Cursor, LogEntry]]:
        """Return events of every kind that match, oldest first."""
        conditions = self._conditions(where, "ts")
        if after is not None:
            conditions.clauses.append(_beyond(conditions, "ts", ">", after))
        rows = await self._fetch("list_events", conditions, limit=conditions.bind(limit))
        return [(Cursor(row[0], row[1]), LogEntry(*row[2:])) for row in rows]

    async def last(self, number: int) -> Sequence[str]:
        """Return the texts of the last events, newest first."""
        return [row[0] for row in await self.database.fetch(self.sql["last_events"], number)]

    async def probes(self, among: int) -> Sequence[str]:
        """Return the texts of what probes found, newest first, among so many of the last events outside calls."""
        return [row[0] for row in await self.database.fetch(self.sql["last_probes"], among)]

    async def of_writer(self, writer: str, after: int, until: int) -> Sequence[str]:
        """Return the texts of what a writer wrote past one number, up to another."""
        return [row[0] for row in await self.database.fetch(self.sql["events_of_writer"], writer, after, until)]

    async def newest(self, since: float, without: Sequence[str], limit: int) -> Sequence[str]:
        """Return the texts of the newest events since a time but those of some writers, newest first."""
        conditions = Conditions()
        conditions.clauses.append(f"ts >= {conditions.bind(float(since))}")
        conditions.clauses.extend(f"writer IS DISTINCT FROM {conditions.bind(writer)}" for writer in without)
        rows = await self._fetch("newest_events", conditions, limit=conditions.bind(limit))
        return [row[0] for row in rows]

    async def find(self, event_or_call_id: str) -> Sequence[LogEntry]:
        """Return every event of a call, or the one event of that id, by time."""
        rows = await self.database.fetch(self.sql["find_events"], clean(event_or_call_id)[:MAX_NAME])
        return [LogEntry(*row) for row in rows]

    async def ids(self, prefix: str, limit: int = 2) -> Sequence[str]:
        """Return up to `limit` ids of calls, and of events outside calls, that begin with `prefix`."""
        # By time first: an id that begins with its time (UUIDv7) is found in the partitions of a few days.
        found = await self._ids(prefix, limit, time_of(prefix))
        return found or await self._ids(prefix, limit, None)

    async def _ids(self, prefix: str, limit: int, between: tuple[float, float] | None) -> Sequence[str]:
        conditions = Conditions()
        pattern = f"{clean(prefix)[:MAX_NAME].replace('*', '')}*"
        in_call, alone = (self._like(conditions, name, pattern) for name in ("call_id", "event_id"))
        conditions.clauses.append(f"({in_call} OR {alone})")
        for operator, moment in zip((">", "<"), between or (), strict=False):
            conditions.clauses.append(f"ts {operator} {conditions.bind(moment)}")
        rows = await self._fetch("list_ids", conditions, in_call=in_call, limit=conditions.bind(limit))
        return [row[0] for row in rows]

    async def count(self, where: Filter) -> int:
        return int((await self._fetch("count_events", self._conditions(where, "ts")))[0][0])

    async def stats(self, where: Filter) -> Stats:
        """Return sums over the events that match."""
        # In one transaction, so that on SQLite the tables of one answer are of one moment.
        return await self.database.transaction(
            lambda connection: self._sum_up(connection, where, MOST_ROWS), read_only=True
        )

    async def _sum_up(self, connection: Transaction, where: Filter, limit: int) -> Stats:
        """Return sums over the events that match, read one by one; `limit` rows of each table at most."""
        conditions = self._conditions(where, "ts")

        async def rows(name: str) -> Sequence[Row]:
            sql = self.sql.compose(name, conditions=str(conditions), limit=str(limit))
            return await connection.fetch(sql, *conditions.values)

        ((count, first, last),) = await rows("stats_span")
        return Stats(
            events=count,
            first=first,
            last=last,
            tools=[ToolStats(*row) for row in await rows("stats_tools")],
            denials=[DenialStats(*row) for row in await rows("stats_denials")],
            secrets=[SecretStats(*row) for row in await rows("stats_secrets")],
            days=[DayStats(*row) for row in await rows("stats_days")],
        )

    async def sample(self, where: Filter, slices: Sequence[float], limit: int) -> Sequence[CallEvent]:
        """Return events of calls between the first and the last of `slices`, at most about `limit` of each slice.

        Where a slice has more, those that are returned stand for the others by their weight.
        """

        async def read(connection: Transaction) -> list[CallEvent]:
            found: list[CallEvent] = []
            for since, until in pairwise(slices):
                found += await self._sample_slice(connection, replace(where, since=since, until=until), limit)
            return found

        return await self.database.transaction(read, read_only=True)

    async def _sample_slice(self, connection: Transaction, where: Filter, limit: int) -> list[CallEvent]:
        async def fetch(name: str) -> Sequence[Row]:
            conditions = self._conditions(where, "ts")
            sql = self.sql.compose(name, conditions=str(conditions), limit=str(int(limit)))
            return await connection.fetch(sql, *conditions.values)

        rows = await fetch("sample_events")
        if len(rows) < limit:
            return [call_event(row) for row in rows if row[1] in _OF_CALLS]
        # What is denied is rare and matters most: it is read apart, so that a sample of the rest hides none of it.
        denied, others = await fetch("sample_denied"), [row for row in rows if row[3] != "deny" or row[1] != "decided"]
        ((all_events,),), ((all_denied,),) = await fetch("count_events"), await fetch("count_denied")
        return [
            *(call_event(row, all_denied / len(denied)) for row in denied),
            *(call_event(row, (all_events - all_denied) / len(others)) for row in others if row[1] in _OF_CALLS),
        ]

    async def close(self) -> None:
        await self.database.close()

    def _conditions(self, where: Filter, time: str) -> Conditions:
        made = Conditions()
        past = "event_is_not_past" if time == "ts" else "call_is_not_past"
        made.clauses.extend(
            self.sql.compose(past, writer=made.bind(writer), seq=made.bind(seq)) for writer, seq in where.without
        )
        for operator, moment in ((">=", where.since), ("<", where.until)):
            if moment is not None:
                made.clauses.append(f"{time} {operator} {made.bind(float(moment))}")
        for name in ("agent", "server", "tool", "decision", "rule"):
            wanted = getattr(where, name)
            if wanted is None:
                continue
            wanted = clean(wanted)[:MAX_NAME]
            if "*" in wanted:
                made.clauses.append(self._like(made, f"{self.unindexed}{name}", wanted))
            else:
                made.clauses.append(f"{name} = {made.bind(wanted)}")
        made.clauses.extend(self._has_argument(made, path, value) for path, value in where.arguments)
        for name, value in where.claims:
            path, listed = claim_path(name)
            made.clauses.append(self._has_claim(made, path, clean(value)[:MAX_NAME], listed=listed))
        if where.text is not None:
            made.clauses.append(self._has_text(made, clean(where.text)[:MAX_NAME]))
        return made

    def _has_text(self, conditions: Conditions, text: str) -> str:
        # In the arguments, which are JSON, quotes and backslashes are escaped.
        marks = {"pattern": text, "json_pattern": json.dumps(text, ensure_ascii=False)[1:-1]}
        bound = {name: conditions.bind(f"%{_LIKE.sub(_ESCAPED, one)}%") for name, one in marks.items()}
        return self.sql.compose("has_text", **bound)

    async def _fetch(self, name: str, conditions: Conditions, **parts: str) -> Sequence[Row]:
        sql = self.sql.compose(name, conditions=str(conditions), **parts)
        return await self.database.fetch(sql, *conditions.values)

    @abc.abstractmethod
    def _has_claim(self, conditions: Conditions, path: Sequence[str], value: str, *, listed: bool) -> str:
        """Return the condition that an event's detail has a text at a path, or in a list there."""

    async def sum_up_lately(self, now: float) -> None:  # noqa: B027  most have nothing to do
        """Put what is kept for reports in order, where the database keeps any. To be called every now and then."""

    @abc.abstractmethod
    async def prepare(self, now: float) -> None:
        """Make the partitions of the next days. To be called at a start and then every day."""

    @abc.abstractmethod
    async def prune(self, before: float, heads: Sequence[Head] = ()) -> int:
        """Delete chains up to their heads, and what is of no chain and older than `before`; return how many went."""

    @abc.abstractmethod
    def _read(self, entry: LogEntry) -> Any:
        """Return what `_insert` needs of an event's text. Raises PoisonError where it is no event."""

    @abc.abstractmethod
    async def _insert(self, reads: Sequence[Read]) -> None:
        """Store entries, all or none. Raises StoreRefusedError where the database does not take one of them."""

    @abc.abstractmethod
    def _like(self, conditions: Conditions, column: str, pattern: str) -> str:
        """Return the condition that a column matches a pattern with `*`."""

    @abc.abstractmethod
    def _has_argument(self, conditions: Conditions, path: str, value: str) -> str:
        """Return the condition that the argument at a path has a value."""


def _beyond(conditions: Conditions, time: str, operator: str, cursor: Cursor) -> str:
    marks = conditions.bind(float(cursor.time)), conditions.bind(cursor.event_id)
    return f"({time}, event_id) {operator} ({marks[0]}, {marks[1]})"


def _call(row: Row) -> CallRecord:
    found = dict(zip(_CALL, row, strict=True))
    found["arguments"] = json.loads(found["arguments"]) if found["arguments"] is not None else None
    for name in ("rules", "shadow_rules", "redactions"):
        found[name] = tuple(json.loads(found[name])) if found[name] is not None else ()
    for name in ("authenticated", "is_error"):
        found[name] = bool(found[name]) if found[name] is not None else None
    return CallRecord(**found)
