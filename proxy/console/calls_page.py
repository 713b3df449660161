"""The list of calls, newest first, and what follows it live."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response, StreamingResponse

from proxy.console.call_filter import DECISIONS, NAMES, SPANS, CallFilter, write_cursor
from proxy.console.call_rows import row
from proxy.console.context import NavEntry, view
from proxy.console.live_feed import encoded
from proxy.console.security import NO_STORE
from proxy.console.text_search import Found, search_back
from proxy.errors import AuditUnavailableError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.routing import Route

    from proxy.console.context import Console
    from proxy.console.sessions import Session

PAGE_ROWS: Final = 50
KEEP_ALIVE_SECONDS: Final = 2.0  # also how long an open page outlives its operator


class CallsPage:
    nav: NavEntry | None = NavEntry("/calls", "Live", "l")

    def __init__(self, console: Console) -> None:
        self._console = console

    def routes(self) -> list[Route]:
        return [view("/calls", self.show), view("/stream", self.stream)]

    async def show(self, request: Request) -> Response:
        wanted = CallFilter.read(request.query_params)
        found, problem = await self._find(wanted)
        calls = found.calls
        more = len(calls) > PAGE_ROWS
        rows = [row(call) for call in calls[:PAGE_ROWS]]
        older = wanted.address(before=write_cursor(calls[PAGE_ROWS - 1].cursor)) if more else ""
        further = wanted.address(before=write_cursor(found.until)) if found.until is not None else ""
        values: dict[str, Any] = {
            "rows": rows,
            "wanted": wanted,
            "names": [name for name in NAMES if name != "decision"],
            "decisions": DECISIONS,
            "spans": SPANS,
            "live": wanted.before is None,
            "older": older,
            "newest": wanted.address(),
            "problem": problem,
            "searched": found.until.time if found.until is not None else None,
            "is_slow": found.is_slow,
            "further": further,
        }
        return self._console.renderer.page(request, "calls.html", values)

    async def _find(self, wanted: CallFilter) -> tuple[Found, str]:
        """Return a page of calls and one more, and what hindered the search."""
        try:
            async with self._console.trail.open() as reader:
                where = wanted.query(time.time())
                if wanted.text:
                    return await search_back(reader, where, PAGE_ROWS + 1, wanted.before), ""
                return Found(await reader.calls(where, PAGE_ROWS + 1, wanted.before)), ""
        except StoreUnavailableError as error:
            return Found(()), f"The store did not answer in time: {error}. Choose a shorter time, or fewer conditions."
        except AuditUnavailableError as error:
            return Found(()), f"A local log cannot be read: {error}."

    async def stream(self, request: Request) -> Response:
        """Answer with server-sent events: what is new, until the browser leaves or its session ends."""
        wanted = CallFilter.read(request.query_params) if request.query_params.get("calls") else None
        events = self._events(request.state.session, wanted)
        return StreamingResponse(events, media_type="text/event-stream", headers=dict(NO_STORE))

    async def _events(self, session: Session, wanted: CallFilter | None) -> AsyncIterator[bytes]:
        with self._console.feed.watch(wanted) as watcher:
            yield b"retry: 2000\n\n"
            while self._console.sessions.lives(session):
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        data = await watcher.waiting.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                # Again: what was waited for is not for an operator who was revoked meanwhile.
                if not self._console.sessions.lives(session):
                    break
                yield data
        yield encoded([("ended", None)])
