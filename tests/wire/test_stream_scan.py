"""A body that streams is stopped where a call appears in any form that a server may find in it."""

from __future__ import annotations

import gzip
import json
import struct
import zlib

import pytest

from proxy.wire.stream_scan import StreamScanner, is_grpc

CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "danger"}}).encode()
LIMIT = 1 << 26
NOISE = bytes(range(256)) * 64
HIDDEN = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(CALL) + CALL


def passes(body: bytes, size: int = 1000, types: tuple[str, ...] = ("application/octet-stream",)) -> bool:
    scanner = StreamScanner(types, (), LIMIT)
    return all(scanner.passes(body[i : i + size]) for i in range(0, len(body), size))


def message(data: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + struct.pack(">I", len(data)) + data


STOPPED = {
    "as it is": CALL,
    "gzip, unsaid": gzip.compress(CALL),
    "zlib, unsaid": zlib.compress(CALL),
    "a hidden request": HIDDEN,
    "a hidden request, later": NOISE + HIDDEN,
    "a second hidden request": b"GET / HTTP/1.1\r\n\r\n<html>" + NOISE + HIDDEN,
    "a hidden request with a long head": NOISE + HIDDEN.replace(b"Host: x", b"X: " + b"a" * 9000),
    "a hidden request in lines of LF": HIDDEN.replace(b"\r\n", b"\n"),
    "a hidden request in chunks": b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    "a hidden request in gzip": b"POST /mcp HTTP/1.1\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(CALL),
    "the query of a hidden request": NOISE + b"\nGET /?id=1&method=tools/call&params[name]=danger HTTP/1.1\r\n\r\n",
    "a long query": b"GET /?a=" + b"a" * 3000 + b"&id=1&method=tools/call&b=" + b"b" * 3000 + b" HTTP/1.1\n\n",
    "the query of a request of HTTP/0.9": NOISE + b"\nGET /?id=1&method=tools/call\r\n",
    "a line that a vertical tab begins": b"x\x0b" + CALL,
    "a line that U+2028 begins": "x\u2028".encode() + CALL,
    "YAML that no type announces": b"method: tools/call\nid: 1\nparams: {name: danger}\n",
    "many hidden requests": b"POST /mcp HTTP/1.1\n\n[" * 20,
}


@pytest.mark.parametrize("size", [1, 3, 64, 1 << 20])
@pytest.mark.parametrize("body", STOPPED.values(), ids=STOPPED.keys())
def test_a_call_in_a_stream_is_stopped_however_it_is_cut(body: bytes, size: int):
    if size == 1 and len(body) > 10_000:
        body = body[-6000:] if b"X: a" not in body else body[-9300:]
    assert not passes(body, size)


LENIENT = {
    "no quotes": (b"{jsonrpc:2.0,id:1,method:tools/call,params:{name:danger}}", "application/json"),
    "dropped backslashes": (
        CALL.replace(b"jsonrpc", b"j\\sonrpc").replace(b"tools/call", b"tools/c\\all"),
        "text/plain",
    ),
    "an array": (b'["2.0",1,"tools/call",{"name":"danger"}]', "application/json"),
    "a method in a list": (b'{"method":["tools/call"]}', "application/json"),
    "hexadecimal escapes": (b'{"method":"\\x74ools/call"}', "application/json"),
    "YAML": (b"method: tools/call\nparams: {name: danger}\n", "application/yaml"),
    "a form": (b"a=1&method=tools%2Fcall&params[name]=danger", "application/x-www-form-urlencoded"),
    "a multipart form": (
        b'--b\r\nContent-Disposition: form-data; name="method"\r\n\r\ntools/call\r\n--b--',
        "multipart/form-data; boundary=b",
    ),
    "one object in a list of another": (b'{"0":' + CALL + b"}", "application/json"),
}


@pytest.mark.parametrize("size", [3, 1000])
@pytest.mark.parametrize(("body", "content_type"), LENIENT.values(), ids=LENIENT.keys())
def test_a_call_in_another_parsers_spelling_is_stopped(body: bytes, content_type: str, size: int):
    assert not passes(body, size, (content_type,))


def test_json_that_speaks_of_calls_in_prose_or_paths_passes():
    body = json.dumps([{"text": "use tools/call to run it", "url": "https://x/tasks/list"}] * 300).encode()
    assert passes(body, 777, ("application/json",))


def test_a_file_in_a_form_may_speak_of_calls():
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.js"\r\n\r\n'
    assert passes(part + b'call("tools/call", {"jsonrpc": 1});\n' * 500, 777, ("multipart/form-data; boundary=b",))


ORDINARY = {
    "noise": NOISE * 10,
    "an archive": gzip.compress(b"tar" * 3000 + CALL),
    "broken gzip": b"\x1f\x8b\x08\x00" + NOISE,
    "a log": b'1.2.3.4 - "GET /x HTTP/1.1" 200 "jsonrpc"\n' * 5000,
    "a web archive": b"WARC/1.0\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n\r\n\r\nWARC/1.0\r\n"
    + b'<p>"jsonrpc"</p>' * 300,
}


@pytest.mark.parametrize("size", [7, 65536])
@pytest.mark.parametrize("body", ORDINARY.values(), ids=ORDINARY.keys())
def test_ordinary_uploads_pass(body: bytes, size: int):
    assert passes(body, size)


GRPC = ("application/grpc+proto",)


@pytest.mark.parametrize("size", [1, 4, 5, 6, 1000])
@pytest.mark.parametrize(
    "body",
    [message(CALL), message(b"hi") + message(CALL), message(gzip.compress(CALL), 1), message(b"") + message(CALL)],
    ids=["first", "second", "gzip", "after an empty one"],
)
def test_a_call_in_a_message_of_grpc_is_stopped(body: bytes, size: int):
    assert not passes(body, size, GRPC)


def test_a_text_of_protobuf_that_is_a_call_is_stopped_and_one_that_quotes_it_passes():
    assert not passes(message(b"\x0a" + bytes([len(CALL)]) + CALL), 9, GRPC)
    assert passes(message(b"\x0a\x7fTo run it, send the server this message (see the docs) " + CALL) * 50, 777, GRPC)


def test_a_stream_says_where_its_messages_end():
    scanner = StreamScanner(GRPC, (), LIMIT)
    data = message(b"hello")
    for at in range(len(data)):
        assert scanner.is_between_messages is (at == 0)
        assert scanner.passes(data[at : at + 1])
    assert scanner.is_between_messages
    assert not StreamScanner(("text/plain",), (), LIMIT).is_between_messages


@pytest.mark.parametrize(
    ("content_type", "is_one"),
    [("application/grpc", True), ("Application/gRPC+proto; x=y", True), ("application/grpc-web", False), ("", False)],
)
def test_grpc_is_told_by_its_content_type(content_type: str, is_one: bool):
    assert is_grpc(content_type) is is_one


def test_a_stream_that_was_stopped_stays_stopped():
    scanner = StreamScanner((), (), LIMIT)
    assert not scanner.passes(CALL)
    assert not scanner.passes(b"harmless")


def test_a_stream_that_decodes_to_too_much_is_stopped():
    bomb = gzip.compress(b"[" + b" " * 3_000_000)
    scanner = StreamScanner((), (), 1_000_000)
    assert not scanner.passes(bomb)
