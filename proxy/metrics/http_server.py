"""The small HTTP server for health and metrics, in a process without an event loop.

It reads one GET from a connection, answers and closes. Nothing here waits: whoever polls the sockets says when there is
something to do. Connections are bounded in number, size and time.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from dataclasses import dataclass, field
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
    """An answer."""

    status: int
    body: str
    content_type: str = "application/json"


@dataclass(slots=True, eq=False)
class _Client:
    sock: socket.socket
    until: float
    head: bytes = b""
    out: bytes = b""
    answered: bool = field(default=False)


class HealthServer:
    """Answers on a listening socket by `answer`, which is given a path."""

    def __init__(self, listener: socket.socket, answer: Callable[[str], Reply]) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._answer = answer
        self._clients: dict[int, _Client] = {}

    def interests(self) -> Iterator[tuple[int, int]]:
        """Return each socket and what it waits for, as `poll` takes them."""
        yield self._listener.fileno(), select.POLLIN
        for number, client in self._clients.items():
            yield number, select.POLLOUT if client.out else select.POLLIN

    def attend(self, number: int) -> bool:
        """Do what can be done on a socket that is ready; return whether it is one of ours."""
        if number == self._listener.fileno():
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
        """Close connections whose time is up."""
        now = time.monotonic()
        for client in [client for client in self._clients.values() if client.until < now]:
            self._close(client)

    def close(self) -> None:
        """Close everything."""
        for client in list(self._clients.values()):
            self._close(client)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            sock.setblocking(False)
            if (
                len(self._clients) >= MAX_CONNECTIONS
            ):  # whoever holds on makes room: a probe that waits has us restarted
                self._close(next(iter(self._clients.values())))
            self._clients[sock.fileno()] = _Client(sock, time.monotonic() + SECONDS)

    def _serve(self, client: _Client) -> None:
        if client.out:
            client.out = client.out[client.sock.send(client.out) :]
        elif client.answered:
            if not client.sock.recv(MAX_HEAD):  # what is still sent is read and dropped: a reset would take the answer
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
            reply = Reply(400, '{"error": "this is not an HTTP/1 request"}')
        elif method not in ("GET", "HEAD"):
            reply = Reply(405, '{"error": "only GET is answered here"}')
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
