"""Reading events as they happened: those in the store and those still in the local logs, each once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from proxy.audit.event import Filter
from proxy.audit.local_log_files import read_logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from proxy.audit.event import Entry
    from proxy.store.event_store import Events

PAGE = 1000


async def last_events(store: Events | None, state_dir: Path, number: int) -> list[dict[str, Any]]:
    """Return the last events, oldest first; without a store, those of the local logs."""
    # The logs first: what goes from there to the store in the meantime is seen twice rather than never.
    found = {event["event_id"]: event for event in read_logs(state_dir, last=number)}
    if store is not None:
        found |= {event["event_id"]: event for event in await _last_stored(store, number)}
    return in_order(found.values())[-number:]


async def events_since(store: Events | None, state_dir: Path, since: float) -> AsyncIterator[dict[str, Any]]:
    """Return the events from a time on, oldest first."""
    waiting = {event["event_id"]: event for event in read_logs(state_dir) if event["time"] >= since}
    ordered = sorted(waiting.values(), key=_place, reverse=True)
    async for event in _stored_since(store, since):
        waiting.pop(event["event_id"], None)
        while ordered and _place(ordered[-1]) <= _place(event):
            if (earlier := ordered.pop())["event_id"] in waiting:
                yield earlier
        yield event
    for event in reversed(ordered):
        if event["event_id"] in waiting:
            yield event


async def _stored_since(store: Events | None, since: float) -> AsyncIterator[dict[str, Any]]:
    if store is not None:
        async for _, event in stored_events(store, Filter(since=since)):
            yield event


async def _last_stored(store: Events, number: int) -> list[dict[str, Any]]:
    return [json.loads(body) for body in await store.last(number)]


async def stored_events(store: Events, where: Filter) -> AsyncIterator[tuple[Entry, dict[str, Any]]]:
    """Return the events of a store that fit, oldest first."""
    after = None
    while page := await store.events(where, limit=PAGE, after=after):
        for _, entry in page:
            yield entry, json.loads(entry.body)
        after = page[-1][0]


def in_order(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort events by the time they happened at."""
    return sorted(events, key=_place)


def is_event(value: Any) -> bool:
    """Return whether what was read is an event; a damaged text is none."""
    return isinstance(value, dict) and all(name in value for name in ("event_id", "kind", "time"))


def _place(event: dict[str, Any]) -> tuple[float, str]:
    return float(event["time"]), event["event_id"]
