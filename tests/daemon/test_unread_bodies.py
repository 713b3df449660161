"""A server that answers without reading a body finds no call in it: Python's own, and one that reads a part."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from tests.daemon.test_smuggling import ask_h2
from tests.support.harness import Certificates, Interlock, start_interlock
from tests.support.raw_socket import parse_answers, send_raw
from tests.support.timeouts import PATIENCE

DANGER = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "danger"}}).encode()


class Unread(BaseHTTPRequestHandler):
    """Runs calls at /mcp. Elsewhere it answers 404 and reads none of the body, or as much as the path says."""

    protocol_version = "HTTP/1.1"
    seen: list[str]

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        if path == "/mcp":
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            self.seen.append(f"ran {body['params']['name']}")
        else:
            self.seen.append(path)
            self.rfile.read(int(path.strip("/") or 0))
        self.send_response(200 if path == "/mcp" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def listening(certificates: Certificates | None = None) -> Iterator[tuple[int, list[str]]]:
    seen: list[str] = []
    handler = type("Bound", (Unread,), {"seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listener:
        listener.daemon_threads = True
        if certificates is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificates.cert_file, certificates.key_file)
            listener.socket = context.wrap_socket(listener.socket, server_side=True)
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        yield listener.server_address[1], seen
        listener.shutdown()
        thread.join(PATIENCE)


@pytest.fixture
def unread() -> Iterator[tuple[int, list[str]]]:
    with listening() as server:
        yield server


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("proxy"), upstream_ca=certificates.ca_file) as running:
        yield running


def hidden(host: str, body: bytes = DANGER) -> bytes:
    head = f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def post(port: int, path: str, body: bytes, *, method: str = "POST", chunk: int = 0) -> bytes:
    head = f"{method} http://127.0.0.1:{port}{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    if not chunk:
        return head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    pieces = [body[i : i + chunk] for i in range(0, len(body), chunk)]
    return (
        head.encode()
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])
    )


def test_the_server_alone_runs_the_call(unread: tuple[int, list[str]]):
    """The control: without a proxy the hidden request is executed."""
    port, seen = unread
    send_raw("127.0.0.1", port, [post(port, "/0", hidden("x"))], answers=2)
    assert seen == ["/0", "ran danger"]


@pytest.mark.parametrize("chunk", [0, 7, 4096])
@pytest.mark.parametrize("method", ["POST", "PUT", "LOCK"])
@pytest.mark.parametrize("read", [0, 100])
def test_a_call_in_an_unread_body_does_not_run(
    interlock: Interlock, unread: tuple[int, list[str]], chunk: int, method: str, read: int
):
    port, seen = unread
    body = b"x" * read + hidden(f"127.0.0.1:{port}")
    send_raw("127.0.0.1", interlock.port, [post(port, f"/{read}", body, method=method, chunk=chunk)])
    send_raw("127.0.0.1", interlock.port, [post(port, "/0", b"")])
    assert seen == ["/0"]


def test_a_call_in_an_unread_body_over_http2_does_not_run(interlock: Interlock, certificates: Certificates):
    with listening(certificates) as (port, seen):
        target = f"127.0.0.1:{port}"
        ask_h2(interlock, target, hidden(target), path="/0")
        assert ask_h2(interlock, target, b"plain", path="/5") == "404"
    assert seen == ["/5"]


def test_what_is_sent_later_does_not_become_part_of_a_request_left_in_a_body(
    interlock: Interlock, unread: tuple[int, list[str]]
):
    """Half a call in an unread body, the other half in the next request on the same connection."""
    port, seen = unread
    half, rest = b'{"id": 1, "method": "tools/ca', b'll", "params": {"name": "danger"}}'
    first = f"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: {len(half) + len(rest) + 999}\r\n\r\n".encode() + half
    send_raw("127.0.0.1", interlock.port, [post(port, "/0", first), 0.2, post(port, "/0", rest)], answers=2)
    assert [line for line in seen if line.startswith("ran")] == []


def test_a_body_that_quotes_http_passes_and_its_connection_is_not_used_again(
    interlock: Interlock, unread: tuple[int, list[str]]
):
    port, seen = unread
    quoted = b"GET /secret HTTP/1.1\r\nHost: x\r\n\r\n"
    answers = parse_answers(
        send_raw("127.0.0.1", interlock.port, [post(port, "/0", quoted), 0.2, post(port, "/0", b"")], answers=2)
    )
    assert [answer.status for answer in answers] == [404, 404]
    assert seen == ["/0", "/0"], "the server read neither the quoted request nor the next one out of turn"


def test_the_refusal_leaves_an_event(interlock: Interlock, unread: tuple[int, list[str]]):
    port, _ = unread
    # Its call on one line is found as a line; spread over two, only as the body of a request.
    for call, reason in (
        (hidden("x"), "not_json"),
        (hidden("x").replace(b'"params"', b'\n"params"'), "hidden_request"),
    ):
        answer = parse_answers(send_raw("127.0.0.1", interlock.port, [post(port, "/0", call)]))[0]
        assert reason.encode() in answer.body
        assert (interlock.events()[-1]["decision"], interlock.events()[-1]["reason"]) == ("deny", reason)
