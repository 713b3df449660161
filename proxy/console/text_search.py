"""A search for a text, newest calls first, that stops when its time is up and says how far it came.

No index knows of texts: over millions of calls, one that is rare would be searched for until the store gives up. So
the trail is searched slice by slice, each as long as the last one's speed allows, and whoever wants more goes on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from proxy.core.event import Cursor
from proxy.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.audit.reader import AuditReader
    from proxy.core.event import CallRecord, Filter

FIRST_SECONDS: Final = 0.12
"""How long the first page of a search may take: a page of calls is to be there in 200 ms."""
FURTHER_SECONDS: Final = 1.5
"""The same for whoever asked to search further."""
SLICE_SECONDS: Final = 600.0
GROWTH: Final = 6.0


@dataclass(frozen=True, slots=True)
class Found:
    """The calls of a page and, where more was asked for than found, how far back the search came; None: to the end."""

    calls: Sequence[CallRecord]
    until: Cursor | None = None
    is_slow: bool = False
    """Whether the store did not answer for the slice that follows."""


async def search_back(reader: AuditReader, where: Filter, rows: int, before: Cursor | None) -> Found:
    """Return up to `rows` calls that match, from `before` or now on. Raises AuditUnavailableError."""
    top = before.time if before is not None else time.time() + SLICE_SECONDS
    floor = where.since if where.since is not None else 0.0
    over = time.monotonic() + (FIRST_SECONDS if before is None else FURTHER_SECONDS)
    calls: list[CallRecord] = []
    span = SLICE_SECONDS * (2 if before is None else 1)
    # The first slice is open above: a clock that is ahead hides no call.
    until: float | None = None
    while True:
        began = time.monotonic()
        since = max(floor, top - span)
        try:
            calls += await reader.calls(replace(where, since=since, until=until), rows - len(calls), before)
        except StoreUnavailableError:
            return Found(calls, Cursor(top, "0"), is_slow=True)
        if len(calls) >= rows or since <= floor:
            return Found(calls)
        left = over - time.monotonic()
        if left <= 0:
            return Found(calls, Cursor(since, "0"))
        # A slice takes as many times longer as it is longer, so the next one is as long as there is time for.
        span *= min(GROWTH, left / max(time.monotonic() - began, 1e-6))
        top = until = since
