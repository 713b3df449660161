"""A request inside a body is found as a server that left the body unread would find it."""

from __future__ import annotations

import gzip
import json
import time

import pytest

from proxy.wire.body import NotMcp, RefusedBody
from proxy.wire.hidden_request import could_hide, has_request_line, read_hidden

CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "danger"}}).encode()
LIMIT = 1 << 24


def request(body: bytes = CALL, *fields: str, line: str = "POST /mcp HTTP/1.1", end: str = "\r\n") -> bytes:
    lines = [line, "Host: x", f"Content-Length: {len(body)}", *fields]
    return (end.join(lines) + end * 2).encode("latin-1") + body


CHUNKS = b"".join(b"%x;a=b\r\n%s\r\n" % (len(CALL[i : i + 9]), CALL[i : i + 9]) for i in range(0, len(CALL), 9))
HIDING = {
    "at the start": request(),
    "after empty lines": b"\r\n\r\n" + request(),
    "after what the server read": b"x" * 5000 + request(),
    "in the middle of a line": b'{"a": 1} ' + request(),
    "in a query": b"GET /x?id=1&method=tools/call&params[name]=danger HTTP/1.1\r\nHost: x\r\n\r\n",
    "in a query and a form": request(b"params[name]=danger", line="POST /x?id=1&method=tools/call HTTP/1.1"),
    "in a field of a query": b"x\nGET /x?payload=%7B%22id%22:1,%22method%22:%22tools/call%22%7D HTTP/1.1\n\n",
    "before more": request() + b"\r\n\r\nmore",
    "second of two": request(b"plain") + request(),
    "bare line feeds": request(end="\n"),
    "tabs": request(line="POST\t/mcp\tHTTP/1.1"),
    "form feeds": request(line="POST\x0c/mcp\x0cHTTP/1.1"),
    "no-break spaces": request(line="POST\xa0/mcp\xa0HTTP/1.1"),
    "file separators": request(line="POST\x1c/mcp\x1cHTTP/1.1"),
    "carriage returns": request(line="POST\r/mcp\rHTTP/1.1"),
    "blanks after the version": request(line="POST /mcp HTTP/1.1  "),
    "an odd version": request(line="POST /mcp HTTP/01.01"),
    "HTTP/1.0": request(line="POST /mcp HTTP/1.0"),
    "lower case": request(line="POST /mcp http/1.1"),
    "another method": request(line="PROPFIND /mcp HTTP/1.1"),
    "an absolute target": request(line="POST http://x/mcp HTTP/1.1"),
    "no headers": b"POST /mcp HTTP/1.1\r\n\r\n" + CALL,
    "a long head": request(CALL, "X: " + "a" * 60_000),
    "a length that cuts off what follows": request() + b"}]garbage",
    "a batch": request(b"[" + CALL + b"]"),
    "a response": request(b'{"jsonrpc":"2.0","id":1,"result":{}}'),
    "gzip": request(gzip.compress(CALL), "Content-Encoding: gzip"),
    "gzip, unsaid": request(gzip.compress(CALL)),
    "UTF-16": request(CALL.decode().encode("utf-16")),
    "a charset": request(CALL.decode().encode("cp037"), "Content-Type: application/json; charset=cp037"),
    "chunks": request(CHUNKS + b"0\r\n\r\n", "Transfer-Encoding: chunked"),
    "a WebSocket": b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\x81\x9aabcd" + bytes(26),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(30),
    "blanks before the call": request(b" \r\n\t" * 1000 + CALL),
}


@pytest.mark.parametrize("body", HIDING.values(), ids=HIDING.keys())
def test_a_call_in_a_request_inside_a_body_is_refused(body: bytes):
    reading = read_hidden(body, LIMIT)
    assert isinstance(reading, RefusedBody)
    assert reading.reason == "hidden_request"
    assert has_request_line(body)


ORDINARY = {
    "an access log": b'1.2.3.4 - - [x] "POST /mcp HTTP/1.1" 200 12 "jsonrpc" "tools/call"\n' * 100,
    "an .http file": b"### list\nGET http://localhost/users HTTP/1.1\nAccept: */*\n\n###\n" * 50,
    "an .http file with JSON": b'POST http://localhost/users HTTP/1.1\nContent-Type: text/json\n\n{"a": 1}\n\n###\n',
    "a web archive": b"WARC/1.0\r\nWARC-Type: request\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n\r\n\r\nWARC/1.0\r\n\r\n"
    b'HTTP/1.1 200 OK\r\n\r\n<html>"jsonrpc": "tools/call"</html>\r\n' * 100,
    "a HAR": json.dumps({"log": {"entries": [{"raw": request().decode()}]}}).encode(),
    "a multipart with a request": b"--x\r\nContent-Type: message/http\r\n\r\nGET /users/1 HTTP/1.1\r\n\r\n\r\n--x--",
    "a Google batch": b"--b\r\nContent-Type: application/http\r\n\r\n" + request(b'{"name":"x"}') + b"\r\n--b--",
    "a standard's example": b"GET /chat HTTP/1.1\nUpgrade: websocket\n\nThe handshake from the server is:\n",
    "prose": b"Send POST /mcp HTTP/1.1 with the call " + CALL,
    "an S3 log": b'REST.GET.OBJECT k "GET /k HTTP/1.1" 200 -\n',
}


@pytest.mark.parametrize("body", ORDINARY.values(), ids=ORDINARY.keys())
def test_what_only_quotes_http_is_no_hidden_request(body: bytes):
    assert isinstance(read_hidden(body, LIMIT), NotMcp)


def test_a_call_in_a_line_of_http_0_9_is_refused():
    assert isinstance(read_hidden(b"x\nGET /x?id=1&method=tools/call&params[name]=danger\r\n", LIMIT), RefusedBody)
    assert isinstance(read_hidden(b"x\nGET /x?id=1&method=card\r\nGET started\n", LIMIT), NotMcp)


def test_a_body_without_the_letters_is_told_at_once():
    assert not could_hide(b"GET / http: //x H T T P /1.1")
    assert could_hide(b" HTTP/")


@pytest.mark.parametrize(
    "body",
    [
        b"POST /mcp HTTP/1.1\n" * 200_000,
        b"POST /mcp HTTP/1.1\n" * 200_000 + b"\n\n",
        b"POST /mcp HTTP/1.1\n\n[" * 200_000,
        b"POST /mcp HTTP/1.1\n\n" + b'{"a":[' * 500_000,
        b"\t\x0b" * 2_000_000 + b"HTTP/1.1" + b"\x0b\x0c" * 2_000_000,
    ],
    ids=["no end", "one end", "many starts", "one long", "blanks"],
)
def test_a_body_made_to_be_slow_is_read_in_bounded_time(body: bytes):
    started = time.process_time()
    read_hidden(body, LIMIT)
    assert time.process_time() - started < 10


def test_past_the_bound_the_words_decide():
    many = b"POST /mcp HTTP/1.1\n\n[ " * 100_000
    assert isinstance(read_hidden(many, LIMIT), NotMcp)
    assert isinstance(read_hidden(many + request(), LIMIT), RefusedBody)
