"""What happens now, for every browser that looks: one look at the audit trail for all of them, and none for nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog

from proxy.console.call_rows import ending, row_of_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from proxy.audit.live_tail import LiveTail
    from proxy.console.call_filter import CallFilter

log = structlog.get_logger("interlock.console")

TICK_SECONDS: Final = 0.25
MAX_MESSAGES: Final = 50  # of calls in one tick: more cannot be read, and would keep the browser busy
MAX_WAITING: Final = 40  # ticks that wait for a slow browser; it misses the oldest

type Message = tuple[str, Any]  # the name of a server-sent event, and its JSON value


@dataclass(eq=False, slots=True)
class Watcher:
    """One browser: what it wants to see (None: no calls), and what waits to be sent to it."""

    calls: CallFilter | None
    waiting: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(MAX_WAITING))

    def tell(self, data: bytes) -> None:
        if self.waiting.full():
            self.waiting.get_nowait()
        self.waiting.put_nowait(data)


class LiveFeed:
    """Tells watchers of calls as they come, and of how many proposals wait for an operator.

    `pending` returns what the browser is told of proposals that wait.
    """

    def __init__(self, tail: Callable[[], LiveTail], pending: Callable[[], Awaitable[Any]]) -> None:
        self._new_tail = tail
        self._pending = pending
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self._last_pending: Any = None

    @contextlib.contextmanager
    def watch(self, calls: CallFilter | None) -> Iterator[Watcher]:
        watcher = Watcher(calls)
        self._watchers.add(watcher)
        if self._last_pending is not None:
            watcher.tell(encoded([("pending", self._last_pending)]))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        tail, ticks = self._new_tail(), 0
        try:
            while self._watchers:
                # A look that fails must not end the feed: the next one may succeed.
                try:
                    await self._tick(tail, look_for_pending=ticks % 4 == 0)
                except Exception as error:
                    log.exception("cannot look at the audit trail", error=str(error))
                ticks += 1
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self._task, self._last_pending = None, None

    async def _tick(self, tail: LiveTail, *, look_for_pending: bool) -> None:
        news = await tail.look()
        shared: list[Message] = []
        if look_for_pending and (pending := await self._pending()) != self._last_pending:
            self._last_pending = pending
            shared.append(("pending", pending))
        # Once for all that want the same: most have no filter.
        told: dict[CallFilter | None, bytes] = {}
        for watcher in tuple(self._watchers):
            if watcher.calls not in told:
                told[watcher.calls] = encoded(shared + _of_calls(watcher.calls, news.events, news.skipped))
            if told[watcher.calls]:
                watcher.tell(told[watcher.calls])


def encoded(messages: list[Message]) -> bytes:
    """Return messages as server-sent events."""
    # ASCII: no character in the data can be taken for the end of a line.
    return "".join([f"event: {name}\ndata: {json.dumps(value)}\n\n" for name, value in messages]).encode()


def _of_calls(wanted: CallFilter | None, events: list[dict[str, Any]], skipped: int) -> list[Message]:
    """Return what a watcher is told of events: new calls, how calls ended, and how many are left out."""
    if wanted is None:
        return []
    fitting = [event for event in events if event.get("method") == "tools/call" and _is_told(event, wanted)]
    left_out = max(0, len(fitting) - MAX_MESSAGES)
    rows = [_row(event) for event in fitting[left_out:]]
    return rows + ([("skipped", skipped + left_out)] if skipped + left_out else [])


def _is_told(event: dict[str, Any], wanted: CallFilter) -> bool:
    return wanted.fits(event) if event["kind"] == "decided" else event["kind"] == "completed" and "call_id" in event


def _row(event: dict[str, Any]) -> Message:
    if event["kind"] == "decided":
        return "call", row_of_event(event)
    return "end", {"id": event["call_id"], **ending(event)}
