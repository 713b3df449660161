"""No request hides in another: every server behind the proxy sees the requests that the gate saw."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import h2.config
import h2.connection
import h2.events
import pytest

from tests.support.harness import Certificates, Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.raw_socket import Tls, parse_answers, send_raw
from tests.support.timeouts import PATIENCE

DANGER = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "danger"}}).encode()


def hidden(host: str) -> bytes:
    head = f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    head += "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-06-18\r\n"
    return f"{head}Content-Length: {len(DANGER)}\r\n\r\n".encode() + DANGER


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("proxy"), upstream_ca=certificates.ca_file) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[ServerHandle]:
    flags = ["--stateless", "--json"]
    folder = tmp_path_factory.mktemp("server")
    with start_python_server("python_modern", folder, certificates=certificates, flags=flags) as handle:
        yield handle


class Recorder(BaseHTTPRequestHandler):
    """Python's own HTTP server: keeps a list of the requests it saw, and ends lines at a bare CR."""

    protocol_version = "HTTP/1.1"
    seen: list[str]

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.seen.append(f"{self.path} {len(self.rfile.read(length))}")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_POST  # noqa: N815  the names that http.server looks for

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def recorder() -> Iterator[tuple[int, list[str]]]:
    seen: list[str] = []
    handler = type("Bound", (Recorder,), {"seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listener:
        listener.daemon_threads = True
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        yield listener.server_address[1], seen
        listener.shutdown()
        thread.join(PATIENCE)


@contextlib.contextmanager
def h2_tunnel(interlock: Interlock, target: str) -> Iterator[tuple[socket.socket, h2.connection.H2Connection]]:
    with socket.create_connection(("127.0.0.1", interlock.port), timeout=PATIENCE) as plain:
        plain.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        assert b" 200 " in plain.recv(4096)
        with Tls(interlock.ca_file, alpn=("h2",)).wrap(plain) as sock:
            config = h2.config.H2Configuration(
                validate_outbound_headers=False, normalize_outbound_headers=False, header_encoding="utf-8"
            )
            connection = h2.connection.H2Connection(config)
            connection.initiate_connection()
            sock.sendall(connection.data_to_send())
            yield sock, connection


def ask_h2(interlock: Interlock, target: str, body: bytes, *extra: tuple[str, str], **pseudo: str) -> str | None:
    """Send one h2 request; return the status, or None where the stream or connection was given up."""
    fields = {"method": "POST", "scheme": "https", "path": "/nothing", "authority": target, **pseudo}
    headers = [(f":{name}", value) for name, value in fields.items()] + [("content-type", "text/plain"), *extra]
    with h2_tunnel(interlock, target) as (sock, connection):
        connection.send_headers(1, headers, end_stream=not body)
        if body:
            connection.send_data(1, body, end_stream=True)
        sock.sendall(connection.data_to_send())
        return _status(sock, connection)


def _status(sock: socket.socket, connection: h2.connection.H2Connection) -> str | None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        data = sock.recv(65536)
        if not data:
            return None
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                return dict(event.headers)[":status"]
            if isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                return None
        sock.sendall(connection.data_to_send())
    return None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "GET"])
def test_an_h2_body_without_a_length_is_not_the_next_request_of_an_h1_server(
    interlock: Interlock, server: ServerHandle, method: str
):
    server.new_executions()
    target = f"127.0.0.1:{server.port}"
    ask_h2(interlock, target, hidden(target), method=method)
    ask_h2(interlock, target, b"plain", method="POST")
    assert server.new_executions() == []


def test_an_h2_call_of_an_allowed_tool_executes(interlock: Interlock, server: ServerHandle):
    server.new_executions()
    target = f"127.0.0.1:{server.port}"
    call = DANGER.replace(b'"danger"', b'"echo", "arguments": {"text": "hi"}')
    headers = [("accept", "application/json, text/event-stream"), ("mcp-protocol-version", "2025-06-18")]
    assert ask_h2(interlock, target, call, *headers, path="/mcp") == "200"
    assert [run["tool"] for run in server.new_executions()] == ["echo"]


@pytest.mark.parametrize(
    "pseudo",
    [{"path": "/x y HTTP/1.1"}, {"method": "GET /z HTTP/1.1"}, {"path": "/x\rX: y"}, {"path": "/x\x00"}],
)
def test_an_h2_target_that_is_no_target_reaches_nobody(interlock: Interlock, server: ServerHandle, pseudo: dict):
    target = f"127.0.0.1:{server.port}"
    assert ask_h2(interlock, target, b"", **pseudo) in (None, "400")


@pytest.mark.parametrize(
    "header", [b"X: a\rContent-Length: 0", b"X: a\x00b", b"X: a\x0bb", b"X\x01: a", b"X: a\rTransfer-Encoding: chunked"]
)
def test_a_control_character_in_a_header_reaches_nobody(interlock: Interlock, recorder, header: bytes):
    port, seen = recorder
    body = hidden(f"127.0.0.1:{port}")
    head = f"POST http://127.0.0.1:{port}/outer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
    head += header + f"\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    answer = parse_answers(send_raw("127.0.0.1", interlock.port, [head + body]))[0]
    assert (answer.status, seen) == (400, [])


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_that_looks_like_a_request_is_a_body(interlock: Interlock, recorder, method: str):
    port, seen = recorder
    body = hidden(f"127.0.0.1:{port}").replace(b"tools/call", b"users/list").replace(b"jsonrpc", b"version")
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    for framing, data in ((f"Content-Length: {len(body)}", body), ("Transfer-Encoding: chunked", chunks)):
        head = f"{method} http://127.0.0.1:{port}/outer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{framing}\r\n\r\n"
        send_raw("127.0.0.1", interlock.port, [head.encode() + data])
    assert seen == [f"/outer {len(body)}"] * 2


@pytest.mark.parametrize("named", ["http://other.example/mcp", "http://127.0.0.1:1/mcp"])
def test_a_request_line_that_names_another_host_inside_a_tunnel_is_refused(interlock: Interlock, recorder, named: str):
    port, seen = recorder
    inner = f"GET {named} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    answer = parse_answers(send_raw("127.0.0.1", interlock.port, [inner], connect=f"127.0.0.1:{port}"))[0]
    assert (answer.status, seen) == (421, [])


def test_a_request_line_with_the_right_host_inside_a_tunnel_goes_on_as_a_path(interlock: Interlock, recorder):
    port, seen = recorder
    inner = f"GET http://127.0.0.1:{port}/page HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    send_raw("127.0.0.1", interlock.port, [inner], connect=f"127.0.0.1:{port}")
    assert seen == ["/page 0"]


def test_a_host_header_with_another_port_is_refused(interlock: Interlock, recorder):
    port, seen = recorder
    head = f"GET http://127.0.0.1:{port}/x HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n".encode()
    assert (parse_answers(send_raw("127.0.0.1", interlock.port, [head]))[0].status, seen) == (421, [])
