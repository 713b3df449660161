"""Bounds that mitmproxy does not set: how much, how long, and what addons are told where something is refused.

The layers that keep to them are in http_connections.py, http_stream.py and http_layer.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import TYPE_CHECKING

from mitmproxy.proxy import commands, events

if TYPE_CHECKING:
    from mitmproxy import http
    from mitmproxy.connection import Client


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of what a connection may bring."""

    header_bytes: int = 64 << 10
    header_seconds: float = 30
    body_bytes: int = 16 << 20
    body_seconds: float = 300
    response_bytes: int = 64 << 20
    message_bytes: int = 16 << 20
    streams: int = 512
    large_uploads: tuple[str, ...] = ()

    def is_large_upload(self, host: str) -> bool:
        """Return whether uploads to `host` may pass the body limit."""
        return any(fnmatchcase(host.lower(), pattern.lower()) for pattern in self.large_uploads)


@dataclass
class ResponseChunk:
    """A piece of a streamed response on its way through a hook."""

    flow: http.HTTPFlow
    data: bytes
    out: list[bytes] = field(default_factory=list)
    """What passes, event by event."""
    is_read: bool = False
    """Whether all of `data` was read. Else the stream is cut after `out`."""


@dataclass
class ResponseChunkHook(commands.StartHook):
    """A piece of a response that is rewritten as it streams. Addons fill `chunk.out`."""

    chunk: ResponseChunk
    blocking = True


@dataclass
class EventPushed(events.MessageInjected[bytes]):
    """A whole server-sent event of the proxy's own, for a flow whose response is an open, rewritten stream."""


@dataclass
class BodyOverdue(events.MessageInjected[None]):
    """The time for a flow's request body is up."""

    message: None = None


@dataclass
class Refusal:
    """A connection given up before it came to a flow."""

    client: Client
    server: str
    status: int
    reason: str


@dataclass
class HttpRefusedHook(commands.StartHook):
    """A connection was given up before it came to a flow. Addons record it."""

    refusal: Refusal
    blocking = False


@dataclass
class ReadAheadHook(commands.StartHook):
    """A request that came ahead of its time is to be read once all that the last one began is done.

    The one who hears of it lets others have their turn first: what is refused at once waits for nothing else.
    """

    client: Client


def refusal_body(status: int, text: str) -> bytes:
    """Spell the body of an answer to something that is refused for its form."""
    return json.dumps({"error": {"status": status, "message": f"Interlock: {text}"}}).encode()


def plain_response(status: int, text: str, **headers: str) -> bytes:
    """Spell an HTTP/1.1 response for a connection that has no flow yet."""
    body = refusal_body(status, text)
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
