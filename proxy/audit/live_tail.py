"""The newest events as they come, for a screen: a bounded look at what is new, however much there is.

`reader.Follower` gives every event and takes the time that needs. Here a look costs the same whether a proxy has done
ten calls or ten thousand since the last one: what is beyond the bound is counted, and left to the pages that search.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from proxy.audit import local_log_sql
from proxy.audit.local_log_files import log_files, open_reader
from proxy.errors import AuditUnavailableError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from proxy.audit.event_store import Events

MAX_EVENTS: Final = 400  # of each writer, and of all other machines together, in one look
LATE_SECONDS: Final = 15.0  # what another machine ships later than this is not shown live


@dataclass(slots=True)
class News:
    """What came since the last look, oldest first, and how many events were left out."""

    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    skipped: int = 0


class LiveTail:
    """Looks at the local logs and at the store. `shared`: other machines ship to the same store.

    The first look takes all that is there as known.
    """

    def __init__(
        self,
        state_dir: Path,
        store: Callable[[], Events | None],
        *,
        shared: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state_dir = state_dir
        self._store = store
        self._shared = shared
        self._clock = clock
        self._numbers: dict[str, int] | None = None
        self._seen: dict[str, float] = {}  # events of other machines, and when they happened

    async def look(self) -> News:
        """Return what is new. A log or store that cannot be read has nothing new, and is looked at again next time."""
        news = News()
        began, self._numbers = self._numbers is None, self._numbers or {}
        for path in log_files(self._state_dir):
            try:
                await self._look_at_log(path, self._numbers, news, began=began)
            except AuditUnavailableError:
                continue
        if self._shared:
            await self._look_at_others(self._numbers, news, began=began)
        news.events.sort(key=lambda event: (event["time"], event["event_id"]))
        return news

    async def _look_at_log(self, path: Path, numbers: dict[str, int], news: News, *, began: bool) -> None:
        with open_reader(path) as connection:
            connection.execute("BEGIN")  # one moment for the state and the events
            state = local_log_sql.read_state(connection)
            if state is None:
                return
            writer, last = state.head.writer, state.head.seq
            known, numbers[writer] = numbers.get(writer, 0), last
            if began or last == known:
                return
            start = max(known, last - MAX_EVENTS)
            news.skipped += start - known
            entries = local_log_sql.page(connection, writer, max(start, state.moved), MAX_EVENTS)
        bodies = [entry.body for entry in entries]
        if start < state.moved:
            bodies += await self._moved(writer, start, state.moved, news)
        news.events += _parsed(bodies)

    async def _moved(self, writer: str, start: int, moved: int, news: News) -> Sequence[str]:
        """Return what was shipped and deleted from a log since the last look."""
        store = self._store()
        if store is not None:
            try:
                return await store.of_writer(writer, start, moved)
            except StoreUnavailableError:
                pass
        news.skipped += moved - start
        return ()

    async def _look_at_others(self, numbers: dict[str, int], news: News, *, began: bool) -> None:
        store, now = self._store(), self._clock()
        if store is None:
            return
        try:
            found = await store.newest(now - LATE_SECONDS, list(numbers), MAX_EVENTS)
        except StoreUnavailableError:
            return
        self._seen = {event_id: at for event_id, at in self._seen.items() if at >= now - 4 * LATE_SECONDS}
        new = [event for event in _parsed(found) if event["event_id"] not in self._seen]
        self._seen |= {event["event_id"]: event["time"] for event in new}
        if not began:
            news.events += new


def _parsed(bodies: Iterable[str]) -> list[dict[str, Any]]:
    """Return what can be parsed: a log may hold a text that was damaged on disk."""
    found = []
    for body in bodies:
        try:
            event = json.loads(body)
            if isinstance(event["event_id"], str) and isinstance(event["time"], int | float) and "kind" in event:
                found.append(event)
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
    return found
