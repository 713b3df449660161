"""The one reader of the audit trail: what is in the store and what is still in the local logs, each event once.

Events move from the logs to the store while they are read. Two rules make each of them count once: the logs are always
read before the store, and whatever was read from a log is left out of the store, by its writer and its number.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.audit import local_log_sql
from proxy.audit.chain_reader import START, AllChains, Chains, LogChains, StoreChains
from proxy.audit.event_sums import add_stats
from proxy.audit.local_log_files import log_files, open_reader, read_logs
from proxy.audit.open_events import EVENTS_TIMEOUT, open_events
from proxy.core.event import CallRecord, Cursor, Filter, LogEntry, Stats
from proxy.errors import StoreUnavailableError
from proxy.store.open_store import store_exists

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from proxy.audit.call_event import CallEvent
    from proxy.audit.event_store import Events

LIMIT = 1000
PAGE_CHARACTERS = 8 << 20
LATE_SECONDS = 60.0
_ENDING = ("upstream_ms", "total_ms", "result_digest", "result_size", "is_error", "outcome")


@contextlib.asynccontextmanager
async def open_audit(
    database_url: str | None, state_dir: Path, *, store_timeout: float = EVENTS_TIMEOUT, local: bool = False
) -> AsyncIterator[AuditReader]:
    """Open the audit trail; with `local` the logs alone. Each query of the store may take `store_timeout` seconds.

    What reads raises StoreUnavailableError where the store cannot be reached, and AuditUnavailableError where a local
    log cannot be read.
    """

    def open_store() -> Events | None:
        there = not local and store_exists(database_url, state_dir)
        return open_events(database_url, state_dir, timeout=store_timeout) if there else None

    async with contextlib.AsyncExitStack() as closing:
        reader = AuditReader(state_dir, open_store, closing)
        closing.push_async_callback(reader.close)
        yield reader


class AuditReader:
    """Reads the store, where there is one, and the local logs of a state folder together."""

    def __init__(
        self, state_dir: Path, open_store: Callable[[], Events | None], closing: contextlib.AsyncExitStack
    ) -> None:
        self.state_dir = state_dir
        self._open_store = open_store
        self._closing = closing
        self._store: Events | None = None
        self._copy: Events | None = None
        # Writers, and the number of the last event of each that is in the store for sure; None: nothing copied yet.
        self._moved: tuple[tuple[str, int], ...] | None = None

    @property
    def store(self) -> Events | None:
        """The store; None as long as there is none. A proxy that starts while this reads may make one."""
        if self._store is None:
            self._store = self._open_store()
        return self._store

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    def chains(self) -> Chains:
        logs = LogChains(self.state_dir)
        return logs if self.store is None else AllChains(logs, StoreChains(self.store))

    async def calls(self, where: Filter, limit: int = 100, before: Cursor | None = None) -> Sequence[CallRecord]:
        parts = await self._parts(where)
        found = [call for events, part in parts for call in await events.calls(part, limit, before)]
        found.sort(key=lambda call: (call.time, call.event_id), reverse=True)
        return [await self._with_ending(call) for call in found[:limit]]

    async def entries(self, where: Filter) -> AsyncIterator[LogEntry]:
        """Yield events of every kind that match, oldest first, however many there are."""
        streams = [_entries(events, part) for events, part in await self._parts(where)]
        heads = [(await anext(stream, None), stream) for stream in streams]
        while left := [(head, stream) for head, stream in heads if head is not None]:
            head, chosen = min(left, key=lambda pair: (pair[0][0].time, pair[0][0].event_id))
            yield head[1]
            heads = [(await anext(stream, None) if stream is chosen else one, stream) for one, stream in left]

    async def find(self, event_or_call_id: str) -> list[dict[str, Any]]:
        """Return every event of a call, or the one event of that id, in the order in which they happened."""
        return [event for _, event in await self.find_entries(event_or_call_id)]

    async def find_entries(self, event_or_call_id: str) -> list[tuple[LogEntry, dict[str, Any]]]:
        """Return the same, each event with its place in its writer's chain."""
        found: dict[str, tuple[LogEntry, dict[str, Any]]] = {}
        for events, _ in reversed(await self._parts(Filter())):
            for entry in await events.find(event_or_call_id):
                event = json.loads(entry.body)
                found[event["event_id"]] = entry, event
        if len({entry.writer for entry, _ in found.values()}) == 1:
            # One writer: by number, because its clock may have jumped.
            return sorted(found.values(), key=lambda pair: (pair[0].seq or 0, _order(pair[1])))
        return sorted(found.values(), key=lambda pair: _order(pair[1]))

    async def ids(self, prefix: str, limit: int = 2) -> list[str]:
        parts = await self._parts(Filter())
        return sorted({one for events, _ in parts for one in await events.ids(prefix, limit)})[:limit]

    async def count(self, where: Filter) -> int:
        return sum([await events.count(part) for events, part in await self._parts(where)])

    async def stats(self, where: Filter) -> Stats:
        return add_stats([await events.stats(part) for events, part in await self._parts(where)])

    async def sample(self, slices: Sequence[float], limit: int) -> list[CallEvent]:
        """Return events of calls, at most about `limit` of each slice of time; see `Events.sample`."""
        return [one for events, part in await self._parts(Filter()) for one in await events.sample(part, slices, limit)]

    async def probes(self, among: int) -> list[dict[str, Any]]:
        """Return what probes found lately, newest first; see `Events.probes`."""
        parts = await self._parts(Filter())
        found = [json.loads(text) for events, _ in parts for text in await events.probes(among)]
        return _in_order({event["event_id"]: event for event in found}.values())[::-1]

    async def last(self, number: int) -> list[dict[str, Any]]:
        # Not by a copy of the logs: they may hold a gigabyte while the store is down, and this is for a few events.
        found = {event["event_id"]: event for event in read_logs(self.state_dir, last=number)}
        if self.store is not None:
            found |= {event["event_id"]: event for event in map(json.loads, await self.store.last(number))}
        return _in_order(found.values())[-number:]

    async def _parts(self, where: Filter) -> list[tuple[Events, Filter]]:
        """Return what to ask: the store without what the logs had, then the copy of the logs."""
        if self._moved is None:
            # Into a store of its own, so that the same SQL answers for both.
            folder = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="interlock-audit-"))
            copy = open_events(None, Path(folder))
            self._closing.push_async_callback(copy.close)
            self._moved = await _copy_logs(self.state_dir, copy)
            self._copy = copy if self._moved else None
        parts = [] if self.store is None else [(self.store, dataclasses.replace(where, without=self._moved))]
        return parts + ([] if self._copy is None else [(self._copy, where)])

    async def _with_ending(self, call: CallRecord) -> CallRecord:
        """Return a call with how it ended, where only a log has that event yet."""
        if self._copy is None or call.completed_at is not None or call.decision == "deny" or call.call_id is None:
            return call
        events = [json.loads(entry.body) for entry in await self._copy.find(call.call_id)]
        ends = [event for event in events if event["kind"] == "completed"]
        if not ends:
            return call
        ending = {name: ends[-1].get(name) for name in _ENDING}
        return dataclasses.replace(call, completed_at=ends[-1]["time"], **ending)


async def _copy_logs(state_dir: Path, copy: Events) -> tuple[tuple[str, int], ...]:
    """Copy what is in the logs; return each log's writer, and the number behind which its copy begins."""
    moved = []
    for path in log_files(state_dir):
        with open_reader(path) as connection:
            connection.execute("BEGIN")  # a snapshot: what is shipped from here on stays in sight
            state = local_log_sql.read_state(connection)
            if state is None or state.oldest is None:
                continue
            moved.append((state.head.writer, state.moved))
            after = state.moved
            while entries := local_log_sql.page(connection, state.head.writer, after, LIMIT):
                await copy.write(entries)
                after = entries[-1].seq or 0
    return tuple(moved)


async def _entries(events: Events, where: Filter) -> AsyncIterator[tuple[Cursor, LogEntry]]:
    limit, after = LIMIT // 10, None
    while page := await events.events(where, limit, after):
        for found in page:
            yield found
        after = page[-1][0]
        # The larger events are, the fewer are held in memory at once: one may have megabytes of arguments.
        largest = max(len(entry.body) for _, entry in page)
        limit = max(1, min(LIMIT, PAGE_CHARACTERS // largest))


class Follower:
    """Gives events as they come, each once; `begin` first.

    Events of this state folder's logs are followed by their numbers, which count on whatever clocks do. Those that
    other machines ship to the same store are found by their times, up to LATE_SECONDS late.
    """

    def __init__(self, reader: AuditReader, clock: Callable[[], float] = time.time) -> None:
        self._reader = reader
        self._clock = clock
        self._settled = False
        self._numbers: dict[str, int] = {}
        self._seen: dict[str, float] = {}

    async def begin(self) -> None:
        """Take what is there now as known."""
        heads = await LogChains(self._reader.state_dir).heads()
        self._numbers = {writer: head.seq for writer, head in heads.items() if head is not None}
        await self._settle()

    def know(self, events: Iterable[dict[str, Any]]) -> None:
        self._seen |= {event["event_id"]: time.monotonic() for event in events}

    async def look(self) -> list[dict[str, Any]]:
        """Return what has come since. A store that does not answer is tried again the next time."""
        await self._settle()  # a store that was made meanwhile holds what was in the logs, which is known
        found = await self._of_logs() + await self._of_others()
        new = {event["event_id"]: event for event in found if event["event_id"] not in self._seen}
        self.know(new.values())
        return _in_order(new.values())

    async def _settle(self) -> None:
        if not self._settled and self._reader.store is not None:
            self._settled = True
            self.know(await self._of_others())

    async def _of_logs(self) -> list[dict[str, Any]]:
        logs = LogChains(self._reader.state_dir)
        heads, found = await logs.heads(), list[dict[str, Any]]()
        store = self._reader.store
        try:
            chains: Chains = logs if store is None else AllChains(logs, StoreChains(store))
            for writer in heads:
                found += await self._of_writer(chains, writer, advance=True)
            # No window reaches back so far, and all numbers are known: else it would grow for as long as it runs.
            since = time.monotonic() - 4 * LATE_SECONDS
            self._seen = {event_id: at for event_id, at in self._seen.items() if at >= since}
        except StoreUnavailableError:
            # What was shipped just before the store went is in neither; since no number advances, it comes later.
            for writer in heads:
                found += await self._of_writer(logs, writer, advance=False)
        return found

    async def _of_writer(self, chains: Chains, writer: str, *, advance: bool) -> list[dict[str, Any]]:
        known = self._numbers.get(writer, 0)
        # "~" sorts behind every id: the page begins behind the event with this number.
        after, found = (START if known == 0 else (known, "~", 0.0)), list[dict[str, Any]]()
        while page := await chains.page(writer, after):
            # Only what can be parsed: a log may hold a text that was damaged on disk.
            new = [json.loads(one.entry.body) for one in page if one.event_id and (one.entry.seq or 0) > known]
            found += [event for event in new if "kind" in event and "time" in event]
            after = page[-1].position
        if advance:
            self._numbers[writer] = max(known, after[0])
        return found

    async def _of_others(self) -> list[dict[str, Any]]:
        store, now = self._reader.store, self._clock()
        if store is None:
            return []
        where = Filter(since=max(0.0, now - LATE_SECONDS), until=now + LATE_SECONDS)
        try:
            found = [entry async for _, entry in _entries(store, where)]
        except StoreUnavailableError:
            return []
        return [json.loads(entry.body) for entry in found if entry.writer not in self._numbers]


def _in_order(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(events, key=_order)


def _order(event: dict[str, Any]) -> tuple[float, str]:
    return float(event["time"]), event["event_id"]
