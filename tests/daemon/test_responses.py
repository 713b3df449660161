"""What servers send back: read whatever its coding, passed on at once, and withheld where it cannot be read."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence

import brotli
import pytest

from tests.support.harness import Interlock, start_interlock
from tests.support.raw_socket import parse_answers, send_raw
from tests.support.timeouts import PATIENCE

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}'
RESULT = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "hi"}]}}
EVENT = b"event: message\nid: 7\ndata: " + json.dumps(RESULT).encode() + b"\n\n"
type CallState = bytes | float | threading.Event


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("proxy"), settings={"event_limit": "64KiB"}) as running:
        yield running


@contextlib.contextmanager
def scripted(*steps: CallState) -> Iterator[tuple[int, list[bytes]]]:
    """A server that reads one request and then does what `steps` say: send, pause, or wait for an event."""
    requests: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE)
            requests.append(_read_request(connection))
            with contextlib.suppress(OSError):
                for step in steps:
                    _take(connection, step)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], requests
        thread.join(PATIENCE)


def _take(connection: socket.socket, step: CallState) -> None:
    if isinstance(step, bytes):
        connection.sendall(step)
    elif isinstance(step, threading.Event):
        step.wait(PATIENCE)
    else:
        time.sleep(step)


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0]):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def request(port: int, body: bytes = CALL, method: str = "POST", *headers: str) -> bytes:
    lines = [f"{method} http://127.0.0.1:{port}/mcp HTTP/1.1", f"Host: 127.0.0.1:{port}"]
    lines += ["Accept: application/json, text/event-stream", "Accept-Encoding: gzip, br", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def response(body: bytes, media_type: str, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {media_type}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked_head(media_type: str = "text/event-stream", *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {media_type}", "Transfer-Encoding: chunked", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


def outcome(interlock: Interlock) -> str:
    return [event["outcome"] for event in interlock.events() if event["kind"] == "completed"][-1]


def ask(interlock: Interlock, steps: Sequence[CallState]) -> bytes:
    with scripted(*steps) as (port, _):
        return send_raw("127.0.0.1", interlock.port, [request(port)])


def test_the_server_is_asked_for_an_unencoded_answer(interlock: Interlock):
    with scripted(response(json.dumps(RESULT).encode(), "application/json")) as (port, requests):
        send_raw("127.0.0.1", interlock.port, [request(port)])
    head = requests[0].lower()
    assert b"accept-encoding: identity" in head
    assert b"gzip" not in head


@pytest.mark.parametrize(
    ("coding", "encode"), [("gzip", gzip.compress), ("br", brotli.compress), ("deflate", zlib.compress)]
)
def test_an_encoded_answer_is_read_all_the_same(interlock: Interlock, coding: str, encode: Callable[[bytes], bytes]):
    body = encode(json.dumps(RESULT).encode())
    received = ask(interlock, [response(body, "application/json", f"Content-Encoding: {coding}")])
    answer = parse_answers(received)[0]
    assert answer.body == body
    assert outcome(interlock) == "done"


@pytest.mark.parametrize(("coding", "encode"), [("gzip", gzip.compress), ("br", brotli.compress)])
def test_an_encoded_event_stream_is_passed_on_unencoded(
    interlock: Interlock, coding: str, encode: Callable[[bytes], bytes]
):
    data = encode(b": keep-alive\n\n" + EVENT)
    pieces = [chunk(data[i : i + 10]) for i in range(0, len(data), 10)]
    received = ask(interlock, [chunked_head("text/event-stream", f"Content-Encoding: {coding}"), *pieces, LAST])
    answer = parse_answers(received)[0]
    assert "content-encoding" not in answer.headers
    assert answer.body == b": keep-alive\n\n" + EVENT
    assert outcome(interlock) == "done"


def test_an_event_stream_in_an_unknown_coding_is_not_passed_on(interlock: Interlock):
    received = ask(interlock, [chunked_head("text/event-stream", "Content-Encoding: rot13"), chunk(EVENT), LAST])
    assert b"hi" not in received


def test_events_leave_one_by_one_as_soon_as_they_are_whole(interlock: Interlock):
    released = threading.Event()
    steps = [
        chunked_head(),
        chunk(b": keep-alive\n"),
        chunk(EVENT[:20]),
        chunk(EVENT[20:]),
        released,
        chunk(EVENT),
        LAST,
    ]
    with scripted(*steps) as (port, _), socket.create_connection(("127.0.0.1", interlock.port)) as client:
        client.settimeout(PATIENCE)
        client.sendall(request(port))
        seen = b""
        while EVENT not in seen:
            seen += client.recv(65536)
        assert b": keep-alive\n" in seen
        assert seen.count(EVENT) == 1
        released.set()
        while seen.count(EVENT) < 2:
            seen += client.recv(65536)


def test_a_stream_of_other_events_on_a_get_passes_byte_for_byte(interlock: Interlock):
    stream = b"\xef\xbb\xbfdata: not json\r\n\r\ndata: [1,\r\ndata: 2]\r\n\r\n:c\r\n\r\nevent: x\rdata: y\r\r"
    with scripted(chunked_head(), *(chunk(bytes([byte])) for byte in stream), LAST) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, b"", "GET")])
    assert parse_answers(received)[0].body == stream


def test_half_an_event_at_the_end_of_a_stream_is_not_passed_on(interlock: Interlock):
    received = ask(interlock, [chunked_head(), chunk(EVENT + EVENT[:30]), LAST])
    assert parse_answers(received)[0].body == EVENT


def test_an_event_past_the_limit_cuts_the_stream(interlock: Interlock):
    received = ask(interlock, [chunked_head(), chunk(EVENT), *[chunk(b"data: " + b"x" * 20_000)] * 10, LAST])
    assert EVENT in received
    assert b"xxxx" not in received


@pytest.mark.parametrize("body", [b"<html>oops</html>", b"{broken", b"\xff\xfe"])
def test_an_answer_that_is_not_json_passes_and_is_recorded_as_unreadable(interlock: Interlock, body: bytes):
    assert parse_answers(ask(interlock, [response(body, "application/json")]))[0].body == body
    assert outcome(interlock) == "unreadable"


def test_an_http_error_passes_and_is_recorded(interlock: Interlock):
    error = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"
    assert parse_answers(ask(interlock, [error]))[0].status == 503
    assert outcome(interlock) == "http_503"


def test_a_connection_that_breaks_before_the_answer_is_recorded(interlock: Interlock):
    assert parse_answers(ask(interlock, []))[0].status == 502
    assert outcome(interlock) == "upstream_error"


def test_a_stream_that_ends_without_the_answer_is_recorded(interlock: Interlock):
    ask(interlock, [chunked_head(), chunk(b": nothing\n\n"), LAST])
    assert outcome(interlock) == "interrupted"


def test_a_tool_error_is_recorded_as_one(interlock: Interlock):
    failed = {**RESULT, "result": {"content": [], "isError": True}}
    ask(interlock, [response(json.dumps(failed).encode(), "application/json")])
    assert outcome(interlock) == "tool_error"


def test_an_answer_forged_to_carry_a_sealed_answer_is_passed_as_it_is(interlock: Interlock):
    forged = {"jsonrpc": "2.0", "id": "ilk1:AAAA", "result": {}}
    answer = ask(interlock, [response(json.dumps(forged).encode(), "application/json")])
    assert json.loads(parse_answers(answer)[0].body) == forged
