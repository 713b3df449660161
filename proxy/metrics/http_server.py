"""A small HTTP server for /healthz, /readyz and /metrics, for the supervisor's poll loop.

The supervisor has one thread and no event loop, so that it can fork at any time; http.server would block on a slow
client or need threads. This server reads one GET per connection, answers and closes, and never blocks.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_CONNECTIONS: Final = 64
MAX_HEAD: Final = 8192
SECONDS: Final = 10.0
BACKLOG: Final = 64


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: str
    content_type: str = "application/json"


@dataclass(slots=True, eq=False)
class _Client:
    sock: socket.socket
    until: float
    head: bytes = b""
    out: bytes = b""
    answered: bool = False


class HealthServer:
    """Serves `answer(path)` on a listening socket."""

    def __init__(self, listener: socket.socket, answer: Callable[[str], Reply]) -> None:
        listener.setblocking(False)
        self.listener = listener
        self._answer = answer
        self._clients: dict[int, _Client] = {}

    def interests(self) -> Iterator[tuple[int, int]]:
        """Yield each socket and the events it waits for, as `poll` takes them."""
        yield self.listener.fileno(), select.POLLIN
        for number, client in self._clients.items():
            yield number, select.POLLOUT if client.out else select.POLLIN

    def attend(self, number: int) -> bool:
        """Handle a socket that is ready; return whether it is one of this server's."""
        if number == self.listener.fileno():
            self._accept()
        elif (client := self._clients.get(number)) is not None:
            try:
                self._serve(client)
            except BlockingIOError:
                pass
            except OSError:
                self._close(client)
        else:
            return False
        return True

    def expire(self) -> None:
        """Close connections that are older than SECONDS."""
        now = time.monotonic()
        for client in [client for client in self._clients.values() if client.until < now]:
            self._close(client)

    def close(self) -> None:
        for client in list(self._clients.values()):
            self._close(client)
        self.listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self.listener.accept()
            sock.setblocking(False)
            # The oldest makes room: clients that hold connections open must not make a health probe time out, since
            # an orchestrator would then restart the proxy.
            if len(self._clients) >= MAX_CONNECTIONS:
                self._close(next(iter(self._clients.values())))
            self._clients[sock.fileno()] = _Client(sock, time.monotonic() + SECONDS)

    def _serve(self, client: _Client) -> None:
        if client.out:
            client.out = client.out[client.sock.send(client.out) :]
        elif client.answered:
            # Read and drop what the client still sends: closing with unread data sends a reset, and the answer is lost.
            if not client.sock.recv(MAX_HEAD):
                self._close(client)
        else:
            self._read(client)
        if client.answered and not client.out:
            with contextlib.suppress(OSError):
                client.sock.shutdown(socket.SHUT_WR)

    def _read(self, client: _Client) -> None:
        piece = client.sock.recv(MAX_HEAD)
        client.head += piece
        if b"\r\n\r\n" in client.head or len(client.head) > MAX_HEAD:
            client.out, client.answered = self._reply(client.head), True
            self._serve(client)
        elif not piece:
            self._close(client)

    def _reply(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path, _, version = rest.partition(" ")
        if not version.startswith("HTTP/1") or len(head) > MAX_HEAD:
            reply = Reply(400, '{"error": "not an HTTP/1 request"}')
        elif method not in ("GET", "HEAD"):
            reply = Reply(405, '{"error": "use GET"}')
        else:
            reply = self._answer(path.partition("?")[0])
        body = reply.body.encode()
        lines = (
            f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}",
            f"Content-Type: {reply.content_type}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == "HEAD" else body)

    def _close(self, client: _Client) -> None:
        self._clients.pop(client.sock.fileno(), None)
        client.sock.close()
