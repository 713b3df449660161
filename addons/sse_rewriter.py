"""Rewrites a server's event stream as it passes: each event leaves as soon as it is whole."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from addons.flow_state import legacy_session
from proxy.gate.router import ResponseRouter, subscription, tools_changed
from proxy.wire.jsonrpc import reencode
from proxy.wire.sse import SseEvent, SseSplitter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mitmproxy import http

    from proxy.wire.content_coding import Inflater


class EventStream:
    """One `text/event-stream` response on its way to the client."""

    def __init__(
        self, router: ResponseRouter, request: http.Request | None, limit: int, inflater: Inflater | None = None
    ) -> None:
        self._router = router
        self._request = request
        self._splitter = SseSplitter(limit)
        self._inflater = inflater
        self._begun = False
        self._resumable = False
        self.is_legacy = False
        self.on_endpoint: Callable[[str, str], None] | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Return what to pass on for `chunk`, event by event. Raises where the stream cannot be read any further."""
        if self._inflater is not None:
            chunk = self._inflater.feed(chunk)
        return map(self._pass_on, self._splitter.feed(chunk))

    def completes(self, chunk: bytes) -> bool:
        """Return whether `chunk` may complete an event, so that there is more to do than to keep it."""
        return self._inflater is not None or self._splitter.completes(chunk)

    @property
    def waiting(self) -> int:
        """How many bytes of an event have come that is not whole yet; at the end of a stream they are dropped."""
        return self._splitter.waiting

    def tools_changed(self, server: str | None) -> bytes | None:
        """Return the event that says the tools changed; None where this stream may not carry it.

        It may where it is a session's own stream, or one that subscribed to this and was confirmed. `server` limits
        it to the streams of one.
        """
        context, in_flight = self._router.context, self._router.in_flight
        if server not in (None, context.server):
            return None
        if in_flight is None:
            params: dict[str, Any] | None = {} if context.session is not None else None
        else:
            params = subscription(in_flight) if self._begun else None
        if params is None:
            return None
        return b"event: message\ndata: " + reencode(tools_changed(params)) + b"\n\n"

    def _pass_on(self, event: SseEvent) -> bytes:
        if event.id and not self._resumable:
            self._resumable = True
            self._router.share()  # a client with an event's id may resume from it on another connection
        if event.data is None:
            return event.raw
        self._begun = True
        if event.event == b"endpoint" and self._router.in_flight is None:
            self._learn_session(event.data.decode())
            return event.raw
        payloads = self._router.rewrite(event.data)
        return event.raw if payloads is None else event.with_data(payloads)

    @property
    def has_marks(self) -> bool:
        """Whether what was rewritten brings labels that have to be stored first."""
        return bool(self._router.marks)

    async def store_marks(self, out: list[bytes]) -> None:
        """Store what the events in `out` bring; where that fails, one refusal takes the place of them all."""
        refused = await self._router.store_marks(None)
        if refused is not None:
            out[:] = [b"event: message\ndata: " + refusal + b"\n\n" for refusal in refused]

    def _learn_session(self, endpoint: str) -> None:
        """Take a legacy stream's message endpoint, where its calls are POSTed to, as its session."""
        assert self._request is not None  # only a stream that belongs to no call names an endpoint
        target = urlsplit(urljoin(self._request.url, endpoint))
        path = target.path + (f"?{target.query}" if target.query else "")
        session = legacy_session(path) or path
        self._router.context = replace(self._router.context, session=session, transport="sse")
        self.is_legacy = True
        if self.on_endpoint is not None:
            self.on_endpoint(self._router.context.server, path)
