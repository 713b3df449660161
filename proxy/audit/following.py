"""Events as they come, each once: those of the logs of this state folder by their numbers, those of others by time.

Numbers go on whatever clocks do. What other machines ship late, by up to LATE_SECONDS, is seen too.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from proxy.audit.event import Filter
from proxy.audit.reading import in_order, is_event, stored_events
from proxy.audit.trails import START, LogsTrail, StoreTrail, WholeTrail
from proxy.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from proxy.audit.chained import Chained
    from proxy.audit.trails import Trail
    from proxy.store.event_store import Events

LATE_SECONDS = 60.0


class Following:
    """Looks again and again; `begin` first."""

    def __init__(self, state_dir: Path, clock: Callable[[], float] = time.time) -> None:
        self._logs = LogsTrail(state_dir)
        self._clock = clock
        self._numbers: dict[str, int] = {}
        self._seen: dict[str, float] = {}

    async def begin(self) -> None:
        """Take what is there now as known. What happens from here on comes."""
        self._numbers = {writer: head.seq for writer, head in (await self._logs.heads()).items() if head is not None}

    def know(self, events: Iterable[dict[str, Any]]) -> None:
        """Take events as known."""
        self._seen |= {event["event_id"]: time.monotonic() for event in events}

    async def settle(self, store: Events | None) -> None:
        """Take what others have written by now as known."""
        if store is not None:
            self.know(await self._others(store))

    async def look(self, store: Events | None) -> list[dict[str, Any]]:
        """Return what has come since. A store that does not answer is asked again the next time."""
        found = await self._own(None if store is None else StoreTrail(store))
        if store is not None:
            found += await self._others(store)
        fresh = {event["event_id"]: event for event in found if event["event_id"] not in self._seen}
        self.know(fresh.values())
        return in_order(fresh.values())

    async def _own(self, stored: StoreTrail | None) -> list[dict[str, Any]]:
        heads = await self._logs.heads()
        found: list[dict[str, Any]] = []
        try:
            trail: Trail = self._logs if stored is None else WholeTrail(self._logs, stored)
            for writer in heads:
                found += await self._of(trail, writer, advance=True)
            self._forget()
        except StoreUnavailableError:
            for writer in heads:  # what left the logs just before is asked for again
                found += await self._of(self._logs, writer, advance=False)
        return found

    async def _of(self, trail: Trail, writer: str, *, advance: bool) -> list[dict[str, Any]]:
        known = self._numbers.get(writer, 0)
        after, found = (START if known == 0 else (known, "~", 0.0)), list[dict[str, Any]]()
        while page := await trail.page(writer, after):
            found += _events(one for one in page if (one.entry.seq or 0) > known)
            after = page[-1].place
        if advance:
            self._numbers[writer] = max(known, after[0])
        return found

    async def _others(self, store: Events) -> list[dict[str, Any]]:
        now = self._clock()
        where = Filter(since=max(0.0, now - LATE_SECONDS), until=now + LATE_SECONDS)
        try:
            found = [(entry.writer, event) async for entry, event in stored_events(store, where)]
        except StoreUnavailableError:
            return []
        return [event for writer, event in found if writer not in self._numbers]

    def _forget(self) -> None:
        """Let go of what is not shown again: all numbers are known, and no window goes back so far."""
        since = time.monotonic() - 4 * LATE_SECONDS
        self._seen = {event_id: at for event_id, at in self._seen.items() if at >= since}


def _events(found: Iterable[Chained]) -> list[dict[str, Any]]:
    events = (json.loads(one.entry.body) for one in found if one.event_id)
    return [event for event in events if is_event(event)]
