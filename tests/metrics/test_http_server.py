"""The health server: small, bounded, and never waiting."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from proxy.metrics import http_server
from proxy.metrics.http_server import MAX_CONNECTIONS, HealthServer, Reply
from tests.support.timeouts import PATIENCE


@contextlib.contextmanager
def served() -> Iterator[tuple[str, int]]:
    """Run a server in the way its host does, until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = HealthServer(listener, lambda path: Reply(200, path * (1 << 16 if path == "/large" else 1), "text/plain"))
    stop = threading.Event()

    def host() -> None:
        while not stop.is_set():
            poll = select.poll()
            for number, wanted in server.interests():
                poll.register(number, wanted)
            for number, _ in poll.poll(20):
                assert server.attend(number)
            server.expire()
        assert not server.attend(12345)
        server.close()

    thread = threading.Thread(target=host)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        stop.set()
        thread.join(PATIENCE)


def ask(address: tuple[str, int], *pieces: bytes) -> bytes:
    with socket.create_connection(address, timeout=PATIENCE) as sock:
        for piece in pieces:
            sock.sendall(piece)
        received = b""
        while piece := sock.recv(1 << 16):
            received += piece
        return received


def test_requests_are_answered_by_path_and_closed() -> None:
    with served() as address:
        answer = ask(address, b"GET /healthz?x=1 HT", b"TP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n")
        assert answer.endswith(b"\r\n\r\n/healthz")
        assert ask(address, b"HEAD /a HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\n")
        assert ask(address, b"POST /a HTTP/1.1\r\n\r\nbody").startswith(b"HTTP/1.1 405 ")
        assert ask(address, b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
        assert ask(address, b"GET /" + b"a" * 9000).startswith(b"HTTP/1.1 400 ")
        assert ask(address, b"GET /large HTTP/1.1\r\n\r\n").endswith(b"/large" * (1 << 16))


def test_connections_that_hold_on_are_bounded_and_make_room() -> None:
    with served() as address:
        crowd = [socket.create_connection(address, timeout=PATIENCE) for _ in range(MAX_CONNECTIONS + 5)]
        assert ask(address, b"GET / HTTP/1.1\r\n\r\n").endswith(b"/")
        assert [sock.recv(1) for sock in crowd[:5]] == [b""] * 5
        for sock in crowd:
            sock.close()


def test_connections_that_hold_on_are_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SECONDS", 0.2)
    with served() as address:
        crowd = [socket.create_connection(address, timeout=PATIENCE) for _ in range(2)]
        assert [sock.recv(1) for sock in crowd] == [b"", b""]
        for sock in crowd:
            sock.close()
