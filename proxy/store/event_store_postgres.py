"""Audit events in Postgres: read by the server itself, indexed, in partitions of a day."""

from __future__ import annotations

import datetime as dt
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from proxy.audit.event_columns import encoded, is_place, readable, segments
from proxy.errors import StoreRefusedError
from proxy.store.database import Query
from proxy.store.event_store import Conditions, Events
from proxy.system.package_data import sql_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxy.audit.event import Entry
    from proxy.audit.hash_chain import Head
    from proxy.store.database import Steps
    from proxy.store.event_store import Read

DAYS_AHEAD = 14
SEPARATOR = "\x1e"  # JSON writes it as an escape
_MAKE = "SELECT interlock_make_partitions($1, $2)"
_DROP = "SELECT interlock_drop_events($1, $2, $3)"


@cache
def _insert_sql() -> str:
    return (sql_dir() / "postgres_insert_events.sql").read_text()


class PostgresEvents(Events):
    """An `events.EventStore` on Postgres."""

    trusting = True
    ways = 4
    day = "to_char(ts AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
    each_redaction = (
        "CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(redactions) WHEN 'array' THEN redactions END) AS found"
    )
    detector = "found.value ->> 'detector'"
    record_only = """found.value @> '{"record_only": true}'"""

    async def prepare(self, now: float) -> None:
        """Make the partitions of the days to come."""
        today = dt.datetime.fromtimestamp(now, dt.UTC).date()
        await self._ask(Query(_MAKE, (today - dt.timedelta(days=1), today + dt.timedelta(days=DAYS_AHEAD))))

    async def prune(self, before: float, heads: Sequence[Head] = ()) -> int:
        """Drop the days that are over and hold nothing else, and delete the rest of it."""
        places = [head.writer for head in heads], [head.seq for head in heads]
        return int(await self._ask(Query(_DROP, (float(before), *places))))

    def _read(self, entry: Entry) -> str:
        return readable(entry.body)

    async def _insert(self, reads: Sequence[Read]) -> None:
        entries = [entry for entry, _ in reads]
        bodies = SEPARATOR.join([entry.body for entry in entries])
        if bodies.count(SEPARATOR) != len(entries) - 1 or not all(entry.body for entry in entries):
            raise StoreRefusedError("a text in the batch is no JSON")
        columns = (
            bodies,
            _joined(read for _, read in reads),
            _joined(entry.writer for entry in entries),
            _joined(None if entry.seq is None else str(entry.seq) for entry in entries),
            _joined(entry.chain for entry in entries),
        )

        def steps(_: bool) -> Steps[None]:  # noqa: FBT001  as Database says
            yield Query(_insert_sql(), columns)

        await self.database.write(steps)

    async def _ask(self, query: Query) -> Any:
        def steps(_: bool) -> Steps[Any]:  # noqa: FBT001  as Database says
            return (yield query)[0][0]

        return await self.database.write(steps)

    def _like(self, conditions: Conditions, column: str, pattern: str) -> str:
        escaped = pattern.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
        return f"{column} LIKE {conditions.bind(escaped.replace('*', '%'))}"

    def _has_argument(self, conditions: Conditions, path: str, value: str) -> str:
        parts = segments(path)
        if any(map(is_place, parts)):
            # A number may be a place in a list or a name, which containment cannot say.
            at = f"arguments #> {conditions.bind(parts)}::text[]"
            fits = [f"{at} = {conditions.bind(json.dumps(one))}::jsonb" for one in encoded(value)]
        else:
            fits = [f"arguments @> {conditions.bind(json.dumps(_nest(parts, one)))}::jsonb" for one in encoded(value)]
        return f"({' OR '.join(fits)})"


def _joined(texts: Iterable[str | None]) -> str:
    return SEPARATOR.join([text or "" for text in texts])


def _nest(parts: Sequence[str], value: Any) -> Any:
    for part in reversed(parts):
        value = {part: value}
    return value
