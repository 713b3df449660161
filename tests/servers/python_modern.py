"""The Python SDK's streamable HTTP server at /mcp: 2026-07-28 and every handshake revision."""

from __future__ import annotations

import mcp.server._streamable_http_modern as modern
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage
from sse_starlette import EventSourceResponse

from tests.servers.common import ExecutionLog, make_server, parse_options, serve


class MemoryEventStore(EventStore):
    """Keeps every event of every stream; the event's id is its position."""

    def __init__(self) -> None:
        self._events: list[tuple[StreamId, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        self._events.append((stream_id, message))
        return str(len(self._events) - 1)

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        if not last_event_id.isdigit() or int(last_event_id) >= len(self._events):
            return None
        position = int(last_event_id)
        stream = self._events[position][0]
        for offset, (stream_id, message) in enumerate(self._events[position + 1 :], position + 1):
            if stream_id == stream and message is not None:
                await send_callback(EventMessage(message, str(offset)))
        return stream


def main() -> None:
    options = parse_options()
    if options.ping is not None:
        modern._SSE_PING_INTERVAL = options.ping
        EventSourceResponse.DEFAULT_PING_INTERVAL = options.ping  # type: ignore[assignment]
    app = make_server(ExecutionLog(options.log)).streamable_http_app(
        json_response=options.json,
        stateless_http=options.stateless,
        event_store=MemoryEventStore() if options.resumable else None,
        retry_interval=100 if options.resumable else None,
        host=options.host,  # on loopback the SDK takes no other name than localhost
    )
    serve(app, options)


if __name__ == "__main__":
    main()
