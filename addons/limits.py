"""Limits that mitmproxy does not have, and the events and hooks of the layers that enforce them (addons/mitm)."""

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
    """How much a connection may bring, and in what time."""

    header_bytes: int = 64 << 10
    header_seconds: float = 30
    body_bytes: int = 16 << 20
    body_seconds: float = 300
    response_bytes: int = 64 << 20
    message_bytes: int = 16 << 20
    streams: int = 512
    large_uploads: tuple[str, ...] = ("*",)
    keep_alive_seconds: float = 5

    @property
    def stream_bytes(self) -> int:
        """How much a body of unknown length may decode to while it streams."""
        return 64 * self.body_bytes

    def is_large_upload(self, host: str) -> bool:
        """Return whether uploads to `host` may pass the body limit."""
        return any(fnmatchcase(host.lower(), pattern.lower()) for pattern in self.large_uploads)


@dataclass
class ResponseChunk:
    """A part of a streamed response, for a hook to rewrite."""

    flow: http.HTTPFlow
    data: bytes
    out: list[bytes] = field(default_factory=list)
    """What is forwarded, event by event."""
    is_read: bool = False
    """Whether all of `data` was read. Else the stream is cut after `out`."""


@dataclass
class ResponseChunkHook(commands.StartHook):
    """A part of a streamed response arrived. Addons fill `chunk.out`."""

    chunk: ResponseChunk
    blocking = True


@dataclass
class HeldPiece:
    """What the client of a call that waits for people is sent next. Addons fill it in; as it is, it ends the stream."""

    flow: http.HTTPFlow
    data: bytes | None = None
    """Signs of life to send."""
    is_decided: bool = False
    """Whether the wait is over: the flow has a response then, or its call is to be made."""
    makes_call: bool = False
    """Whether the request is to be forwarded."""


@dataclass
class HeldPieceHook(commands.StartHook):
    """The client of a call that waits for people is due a sign of life, or its answer."""

    piece: HeldPiece
    blocking = True


@dataclass
class LargeUploadHook(commands.StartHook):
    """More of a body came than is read whole. An addon sets `stream` on the request where the rest may stream."""

    flow: http.HTTPFlow
    blocking = True


@dataclass
class EventPushed(events.MessageInjected[bytes]):
    """A server-sent event of the proxy's own, for a flow whose response is an open, rewritten stream."""


@dataclass
class BodyOverdue(events.MessageInjected[None]):
    """The time for a flow's request body is up."""

    message: None = None


@dataclass
class Refusal:
    """A connection refused before it had a flow."""

    client: Client
    server: str
    status: int
    reason: str


@dataclass
class HttpRefusedHook(commands.StartHook):
    """A connection was refused before it had a flow. Addons record it."""

    refusal: Refusal
    blocking = False


@dataclass
class ReadAheadHook(commands.StartHook):
    """A pipelined request is about to be read. Its addon yields to the event loop first.

    Otherwise a client whose pipelined requests are all refused at once would keep every other connection waiting.
    """

    client: Client


def refusal_body(status: int, text: str) -> bytes:
    """Return the body of a response to a request that is refused for its form."""
    return json.dumps({"error": {"status": status, "message": f"Interlock: {text}"}}).encode()


def plain_response(status: int, text: str, **headers: str) -> bytes:
    """Return an HTTP/1.1 response for a connection that has no flow yet."""
    body = refusal_body(status, text)
    # Not mitmproxy's `make_error_response`: that one quotes what it could not read.
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
