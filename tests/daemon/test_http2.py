"""HTTP/2 connections keep to the same limits as HTTP/1 ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import h2.connection
import h2.events
import pytest
from hyperframe.frame import HeadersFrame

from tests.acceptance.test_approval import HOLD as HOLD_TRANSFERS
from tests.acceptance.test_approval import approve, pending
from tests.daemon.conftest import HASTE, SETTINGS, Pair
from tests.daemon.waiting import next_refusal, refusals
from tests.support.harness import Certificates, ServerHandle, free_port, start_interlock, start_python_server
from tests.support.raw_socket import Tls
from tests.support.timeouts import PATIENCE

HOLD = HOLD_TRANSFERS.replace("transfer_funds", "danger")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("h2")


@pytest.fixture(scope="module")
def server(folder: Path, certificates: Certificates) -> Iterator[ServerHandle]:
    with start_python_server("web", folder, certificates=certificates) as running:
        yield running


@pytest.fixture(scope="module")
def secure(folder: Path, server: ServerHandle, certificates: Certificates) -> Iterator[Pair]:
    """A proxy on tight limits before a web server with TLS."""
    with start_interlock(folder / "secure", settings=SETTINGS, upstream_ca=certificates.ca_file) as interlock:
        yield Pair(interlock, server)


@pytest.fixture(scope="module")
def hurried(folder: Path, server: ServerHandle, certificates: Certificates) -> Iterator[Pair]:
    """The same that gives requests little time; enough for a tunnel and a handshake."""
    settings = {**SETTINGS, **HASTE, "header_timeout": 4}
    with start_interlock(folder / "hurried", settings=settings, upstream_ca=certificates.ca_file) as interlock:
        yield Pair(interlock, server)


class Peer:
    """An HTTP/2 client inside a tunnel."""

    def __init__(self, target: str, sock: socket.socket) -> None:
        self.sock = sock
        self.h2 = h2.connection.H2Connection()
        self.h2.initiate_connection()
        self.pseudo = [(":scheme", "https"), (":authority", target), (":path", "/echo")]
        self.answers: dict[int, tuple[str, bytes]] = {}
        self.closed = False

    def ask(self, stream: int, method: str, *headers: tuple[str, str], end: bool) -> None:
        self.h2.send_headers(stream, [(":method", method), *self.pseudo, *headers], end_stream=end)
        self.sock.sendall(self.h2.data_to_send())

    def read(self, until: int | None = None) -> None:
        """Read until the answer to a stream is whole, or the connection is closed."""
        deadline = time.monotonic() + PATIENCE
        while not self.closed and time.monotonic() < deadline:
            data = self.sock.recv(65536)
            self.closed = not data
            for event in self.h2.receive_data(data) if data else ():
                if self._take(event) == until is not None:
                    return
            self.sock.sendall(self.h2.data_to_send())

    def read_comment(self, stream: int) -> None:
        """Read until a stream that goes on was sent a comment."""
        deadline = time.monotonic() + PATIENCE
        while b": " not in self.answers.get(stream, ("", b""))[1]:
            assert time.monotonic() < deadline
            for event in self.h2.receive_data(self.sock.recv(65536)):
                assert self._take(event) != stream
            self.sock.sendall(self.h2.data_to_send())

    def _take(self, event: h2.events.Event) -> int | None:
        """Keep what an event brings; return the stream that it ends."""
        if isinstance(event, h2.events.ResponseReceived):
            self.answers[event.stream_id] = (dict(event.headers)[b":status"].decode(), b"")
        elif isinstance(event, h2.events.DataReceived):
            status, body = self.answers[event.stream_id]
            self.answers[event.stream_id] = (status, body + event.data)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.closed = True
        elif isinstance(event, h2.events.StreamEnded):
            return event.stream_id
        return None


@contextlib.contextmanager
def tunnel(pair: Pair, target: str = "") -> Iterator[Peer]:
    target = target or pair.target
    with contextlib.closing(socket.create_connection(("127.0.0.1", pair.interlock.port), timeout=PATIENCE)) as sock:
        sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        while not sock.recv(4096).endswith(b"\r\n\r\n"):
            pass
        with Tls(pair.interlock.ca_file, alpn=("h2",)).wrap(sock) as wrapped:
            yield Peer(target, wrapped)


def test_a_head_past_the_limit_gets_431_and_the_connection_goes_on(secure: Pair):
    seen = len(refusals(secure.interlock))
    with tunnel(secure) as peer:
        peer.ask(1, "GET", ("x-long", "a" * 9000), end=True)
        peer.read(until=1)
        peer.ask(3, "GET", ("x-long", "a" * 7000), end=True)
        peer.read(until=3)
    status, body = peer.answers[1]
    assert (status, "header_limit" in json.loads(body)["error"]["message"]) == ("431", True)
    assert peer.answers[3][0] == "200"
    assert next_refusal(secure.interlock, seen)["reason"] == "head_too_large"


def test_a_head_past_the_limit_with_a_body_to_come_gets_431(secure: Pair):
    with tunnel(secure) as peer:
        peer.ask(1, "POST", ("x-long", "a" * 9000), end=False)
        peer.read(until=1)
    assert peer.answers[1][0] == "431"


def test_a_body_that_never_begins_gets_408(hurried: Pair):
    seen = len(refusals(hurried.interlock))
    with tunnel(hurried) as peer:
        peer.ask(1, "POST", ("content-length", "10"), end=False)
        peer.read(until=1)
    status, body = peer.answers[1]
    assert (status, "body_timeout" in json.loads(body)["error"]["message"]) == ("408", True)
    assert next_refusal(hurried.interlock, seen)["reason"] == "body_too_slow"


def test_a_head_that_never_ends_closes_the_connection_after_good_requests_too(hurried: Pair):
    seen = len(refusals(hurried.interlock))
    with tunnel(hurried) as peer:
        peer.ask(1, "GET", end=True)
        peer.read(until=1)
        assert peer.answers[1][0] == "200"
        peer.sock.sendall(HeadersFrame(3, peer.h2.encoder.encode([(":method", "GET")])).serialize())
        peer.read()
        assert peer.closed
    assert next_refusal(hurried.interlock, seen)["reason"] == "head_too_slow"


def test_half_a_frame_of_a_head_closes_the_connection(hurried: Pair):
    with tunnel(hurried) as peer:
        peer.ask(1, "GET", end=True)
        peer.read(until=1)
        peer.sock.sendall(HeadersFrame(3, b"x" * 50, flags=["END_HEADERS"]).serialize()[:20])
        peer.read()
        assert peer.closed


def test_a_breach_of_the_protocol_leaves_an_event(secure: Pair):
    seen = len(refusals(secure.interlock))
    with tunnel(secure) as peer:
        peer.ask(1, "GET", end=True)
        peer.read(until=1)
        peer.sock.sendall(HeadersFrame(2, b"", flags=["END_HEADERS"]).serialize())
        peer.read()
        assert peer.closed
    assert next_refusal(secure.interlock, seen)["reason"] == "bad_request"


def test_an_error_page_is_our_own(secure: Pair):
    with tunnel(secure, f"127.0.0.1:{free_port()}") as peer:
        peer.ask(1, "GET", end=True)
        peer.read(until=1)
    status, body = peer.answers[1]
    assert (status, json.loads(body)["error"]["status"]) == ("502", 502)
    assert b"mitmproxy" not in body


def _call(peer: Peer, stream: int, *, accept: str) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger","arguments":{}}}'
    peer.ask(stream, "POST", ("content-type", "application/json"), ("accept", accept), end=False)
    peer.h2.send_data(stream, body, end_stream=True)
    peer.sock.sendall(peer.h2.data_to_send())


async def test_a_stream_that_is_reset_while_its_call_waits_for_people_makes_no_call(
    tmp_path: Path, server: ServerHandle, certificates: Certificates
) -> None:
    server.new_executions()
    with start_interlock(
        tmp_path,
        policy=HOLD,
        settings={"hold_timeout": PATIENCE, "hold_keepalive": 0.1},
        upstream_ca=certificates.ca_file,
    ) as interlock:
        with tunnel(Pair(interlock, server)) as peer:
            peer.pseudo[-1] = (":path", "/rpc")
            _call(peer, 1, accept="text/event-stream")
            await asyncio.to_thread(peer.read_comment, 1)
            await approve(interlock.state_dir)
            await asyncio.to_thread(peer.read, 1)
            told = peer.answers[1][1].rpartition(b"data: ")[2]
            assert "HTTP 404 and no result" in json.loads(told)["error"]["message"]
            _call(peer, 3, accept="application/json")
            await pending(interlock.state_dir)
            _call(peer, 5, accept="application/json, text/event-stream")
            await asyncio.to_thread(peer.read_comment, 5)
            peer.h2.reset_stream(3)
            peer.h2.reset_stream(5)
            peer.sock.sendall(peer.h2.data_to_send())
            async with asyncio.timeout(PATIENCE):
                while sum(event.get("reason") == "caller_gone" for event in interlock.recorded()) < 2:
                    await asyncio.sleep(0.05)
            await approve(interlock.state_dir)
        assert server.new_executions() == []
