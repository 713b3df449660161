"""The events of a store and of the local logs that fill it, asked as one, each event once.

What the logs hold when it is opened is copied aside, where the store's own questions
can be asked of it; of the store that is left out, though it may arrive there meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.audit import local_log_sql
from proxy.audit.local_log_files import log_files, open_reader
from proxy.audit.sums import add
from proxy.store.open_store import EVENTS_TIMEOUT, open_events, store_exists

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from proxy.audit.event import CallRecord, Cursor, Entry, Filter, Stats
    from proxy.store.event_store import Events

LIMIT = 1000
PAGE_CHARACTERS = 8 << 20
_ENDING = ("upstream_ms", "total_ms", "result_digest", "result_size", "is_error", "outcome")

type Place = tuple[str, int]
"""A writer, and the number of its last event that is in the store for sure."""


class WholeEvents:
    """Answers as an `events.EventStore` does. Without a store it has the logs alone."""

    def __init__(self, store: Events | None, waiting: Events | None, places: tuple[Place, ...]) -> None:
        self.store = store
        self._waiting = waiting
        self._places = places

    async def calls(self, where: Filter, limit: int = 100, before: Cursor | None = None) -> Sequence[CallRecord]:
        """Return tool calls that fit, newest first."""
        stored = await self.store.calls(self._stored(where), limit, before) if self.store else []
        if self._waiting is None:
            return stored
        both = [*stored, *await self._waiting.calls(where, limit, before)]
        both.sort(key=lambda call: (call.time, call.event_id), reverse=True)
        return [await self._with_ending(call, self._waiting) for call in both[:limit]]

    async def entries(self, where: Filter) -> AsyncIterator[Entry]:
        """Return events of every kind that fit, oldest first, however many there are."""
        streams = [_entries(one, part) for one, part in self._parts(where)]
        heads = [(await anext(stream, None), stream) for stream in streams]
        while left := [(head, stream) for head, stream in heads if head is not None]:
            head, chosen = min(left, key=lambda pair: (pair[0][0].time, pair[0][0].event_id))
            yield head[1]
            heads = [(await anext(stream, None) if stream is chosen else one, stream) for one, stream in left]

    async def find(self, event_or_call_id: str) -> list[dict[str, Any]]:
        """Return every event of a call, or the one event of that id, in the order in which they happened."""
        found: dict[str, tuple[Entry, dict[str, Any]]] = {}
        for one in filter(None, (self._waiting, self.store)):
            for entry in await one.find(event_or_call_id):
                event = json.loads(entry.body)
                found[event["event_id"]] = entry, event
        by_number = len({entry.writer for entry, _ in found.values()}) == 1  # clocks may jump, numbers do not
        ordered = sorted(found.values(), key=lambda pair: _place(*pair, by_number=by_number))
        return [event for _, event in ordered]

    async def ids(self, prefix: str, limit: int = 2) -> list[str]:
        """Return ids of calls, and of events outside calls, that begin so."""
        found = {one for part in filter(None, (self._waiting, self.store)) for one in await part.ids(prefix, limit)}
        return sorted(found)[:limit]

    async def count(self, where: Filter) -> int:
        """Count the events that fit."""
        return sum([await one.count(part) for one, part in self._parts(where)])

    async def stats(self, where: Filter) -> Stats:
        """Sum up the events that fit."""
        return add([await one.stats(part) for one, part in self._parts(where)])

    def _stored(self, where: Filter) -> Filter:
        return dataclasses.replace(where, without=self._places)

    def _parts(self, where: Filter) -> list[tuple[Events, Filter]]:
        stored = [(self.store, self._stored(where))] if self.store else []
        return stored + ([(self._waiting, where)] if self._waiting else [])

    async def _with_ending(self, call: CallRecord, waiting: Events) -> CallRecord:
        """Return a call with how it ended, where only a log knows that yet."""
        if call.completed_at is not None or call.decision == "deny" or call.call_id is None:
            return call
        events = [json.loads(entry.body) for entry in await waiting.find(call.call_id)]
        ends = [event for event in events if event["kind"] == "completed"]
        if not ends:
            return call
        told = {name: ends[-1].get(name) for name in _ENDING}
        return dataclasses.replace(call, completed_at=ends[-1]["time"], **told)


@contextlib.asynccontextmanager
async def open_whole(
    database_url: str | None, state_dir: Path, *, patience: float = EVENTS_TIMEOUT
) -> AsyncIterator[WholeEvents]:
    """Return what there is of events, for as long as the block lasts; each question may take `patience` seconds.

    Raises StoreUnavailableError where the store cannot be reached, and
    AuditUnavailableError where a local log cannot be read.
    """
    async with contextlib.AsyncExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="interlock-audit-")))
        waiting = open_events(None, folder)
        closing.push_async_callback(waiting.close)
        # The logs first: what leaves one of them from here on is in the copy, and what left before is in the store.
        places = await _copy_logs(state_dir, waiting)
        store = None
        if store_exists(database_url, state_dir):
            store = open_events(database_url, state_dir, timeout=patience)
            closing.push_async_callback(store.close)
            await store.database.check()
        yield WholeEvents(store, waiting if places else None, places)


async def _copy_logs(state_dir: Path, waiting: Events) -> tuple[Place, ...]:
    """Copy what is in the logs; return from where on it is."""
    places = []
    for path in log_files(state_dir):
        with open_reader(path) as connection:
            connection.execute("BEGIN")  # all of it is read as it is now
            state = local_log_sql.read_state(connection)
            if state is None or state.oldest is None:
                continue
            places.append((state.head.writer, state.moved))
            after = state.moved
            while entries := local_log_sql.page(connection, state.head.writer, after, LIMIT):
                await waiting.write(entries)
                after = entries[-1].seq or 0
    return tuple(places)


async def _entries(events: Events, where: Filter) -> AsyncIterator[tuple[Cursor, Entry]]:
    """Return events page by page; the larger they are, the fewer are held at once."""
    limit, after = LIMIT // 10, None
    while page := await events.events(where, limit, after):
        for found in page:
            yield found
        after = page[-1][0]
        largest = max(len(entry.body) for _, entry in page)
        limit = max(1, min(LIMIT, PAGE_CHARACTERS // largest))


def _place(entry: Entry, event: dict[str, Any], *, by_number: bool) -> tuple[float, str]:
    return (entry.seq or 0 if by_number else float(event["time"])), event["event_id"]
