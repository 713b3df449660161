"""Peers that send more than anyone is ready for: the proxy reads no further, or ends the connection."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.daemon.answering import answering
from tests.daemon.conftest import Pair
from tests.support.harness import send_raw
from tests.support.raw_socket import parse_answers
from tests.support.timeouts import PATIENCE

BLOCK = b"x" * (1 << 18)
MUCH = 128 << 20
KEPT = 32 << 20  # what stands in sockets' buffers, too
NOTICE = (
    b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/message",'
    b'"params":{"level":"info","data":"' + b"word and word " * 30 + b'"}}\n\n'
)
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
ENDLESS = {
    "head": b"HTTP/1.1 200 OK\r\nX: ",
    "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
}
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def request(target: str, method: str = "GET", *lines: str) -> bytes:
    head = (f"{method} http://{target}/ HTTP/1.1", f"Host: {target}", *lines, "", "")
    return "\r\n".join(head).encode()


def pour(sock: socket.socket, block: bytes, much: int = MUCH) -> int:
    """Send until there is enough, nobody reads for a while, or the connection ends; return how much that was."""
    sent = 0
    sock.settimeout(2)
    with contextlib.suppress(OSError):
        while sent < much:
            sent += sock.send(block)
    return sent


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Have `serve` answer one connection; return its host and port."""

    def run() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as connection:
            connection.settimeout(PATIENCE)
            connection.recv(65536)
            serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)


def test_an_event_stream_is_read_no_faster_than_it_is_looked_through(pair: Pair) -> None:
    sent = got = 0

    def serve(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(STREAM)
        block = NOTICE * 2000
        while sent < MUCH:
            sent += connection.send(block)
            assert sent - got < KEPT

    with serving(serve) as target, socket.create_connection(("127.0.0.1", pair.interlock.port)) as client:
        client.settimeout(PATIENCE)
        client.sendall(request(target, "GET", "Accept: text/event-stream", "Connection: close"))
        while got < KEPT // 8 and (data := client.recv(1 << 18)):
            got += len(data)
        assert got >= KEPT // 8
        time.sleep(1)  # what is sent meanwhile is more than is kept, unless nobody reads it
        assert sent - got < KEPT


@pytest.mark.parametrize("start", ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_an_end_of_its_head_or_chunk_ends(pair: Pair, start: bytes) -> None:
    sent = 0

    def serve(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(start)
        sent = pour(connection, BLOCK)

    with serving(serve) as target:
        received = send_raw("127.0.0.1", pair.interlock.port, [request(target)])
        assert [answer.status for answer in parse_answers(received)] == ([] if b"chunked" in start else [502])
    assert sent < KEPT


@pytest.mark.parametrize("lines", [(), ("Transfer-Encoding: chunked",)])
def test_a_client_that_sends_ahead_is_cut_off(pair: Pair, lines: tuple[str, ...]) -> None:
    held = threading.Event()

    def serve(_: socket.socket) -> None:
        held.wait(PATIENCE)

    with serving(serve) as target:
        with socket.create_connection(("127.0.0.1", pair.interlock.port)) as client:
            client.sendall(request(target, "POST" if lines else "GET", *lines) + (b"1;" if lines else b""))
            assert pour(client, BLOCK) < KEPT + (16 << 20)
        held.set()
    assert "crashed" not in pair.interlock.errors()


@contextlib.contextmanager
def halted(pair: Pair) -> Iterator[None]:
    """Let the proxy do nothing until the block ends."""
    for pid in pair.interlock.worker_pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pair.interlock.worker_pids:
            os.kill(pid, signal.SIGCONT)


def test_requests_that_came_at_once_leave_others_their_turn(pair: Pair) -> None:
    seen, number = len(pair.interlock.events(some=False)), 800
    many, one = (request(pair.target).replace(b"Host: ", b"Host: %s." % name) for name in (b"many", b"one"))
    address = "127.0.0.1", pair.interlock.port
    with socket.create_connection(address) as flood, socket.create_connection(address) as other:
        with halted(pair):  # so that all of it is there when it is looked at
            flood.sendall(many * number)
            other.sendall(one)
        for sock, expected in ((flood, number), (other, 1)):
            sock.settimeout(PATIENCE)
            received = b""
            while received.count(b"421 Misdirected") < expected:
                received += (piece := sock.recv(1 << 16))
                assert piece, "the connection was closed"
    order = ["'one." in event["detail"]["problem"] for event in pair.interlock.events()[seen:]]
    assert order.index(True) < number // 2, "a client had to wait for all that another one had asked for"


def test_a_refusal_of_head_has_no_body_that_would_be_the_next_answer(pair: Pair) -> None:
    refused = request(pair.target, "HEAD").replace(b"Host: ", b"Host: not.")
    received = send_raw("127.0.0.1", pair.interlock.port, [refused * 2], answers=2)
    assert [head.split(b"\r\n")[0] for head in received.split(b"\r\n\r\n")] == [
        b"HTTP/1.1 421 Misdirected Request"
    ] * 2 + [b""]


def test_trailers_of_an_answer_are_left_out_and_end_it(pair: Pair) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Trailer: 1\r\n\r\n"
    with answering(answer) as target:
        received = send_raw("127.0.0.1", pair.interlock.port, [request(target)])
    assert [answer.body for answer in parse_answers(received, ended=False)] == [b"ok"]
    assert b"trailer" not in received.lower()


def test_a_tunnel_outlives_the_server_of_a_request_before_it(pair: Pair) -> None:
    closed = threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.sendall(PLAIN)
        assert closed.wait(PATIENCE)

    with serving(serve) as before, socket.create_connection(("127.0.0.1", pair.interlock.port)) as client:
        client.settimeout(PATIENCE)
        client.sendall(request(before))
        assert client.recv(4096).endswith(b"ok")
        client.sendall(f"CONNECT {pair.target} HTTP/1.1\r\nHost: {pair.target}\r\n\r\n".encode())
        assert b" 200 " in client.recv(4096)
        closed.set()
        time.sleep(0.2)  # the end of the other connection arrives first
        client.sendall(f"GET /echo HTTP/1.1\r\nHost: {pair.target}\r\n\r\n".encode())
        assert b" 200 " in client.recv(4096)
    assert "crashed" not in pair.interlock.errors()
