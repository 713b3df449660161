"""What is refused below HTTP and inside WebSockets leaves an event, and no crash in the log."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pytest

from tests.daemon.conftest import Pair
from tests.daemon.waiting import next_refusal, refusals
from tests.support.harness import Certificates, start_interlock, start_python_server
from tests.support.raw_socket import Tls, parse_answers, send_raw

KEY = base64.b64encode(b"0123456789abcdef").decode()
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger"}}'


def masked(head: bytes) -> bytes:
    return head + bytes(4) + CALL


FRAMES = {
    "a length in two bytes for one": masked(b"\x81\xfe" + struct.pack(">H", len(CALL))),
    "a length in eight bytes for one": masked(b"\x81\xff" + struct.pack(">Q", len(CALL))),
    "no mask": bytes([0x81, len(CALL)]) + CALL,
    "a reserved opcode": masked(bytes([0x83, 0x80 | len(CALL)])),
    "a reserved bit": masked(bytes([0xC1, 0x80 | len(CALL)])),
    "a continuation of nothing": masked(bytes([0x80, 0x80 | len(CALL)])),
    "a fragmented ping": masked(bytes([0x09, 0x80 | len(CALL)])),
    "a ping that is too long": b"\x89\xfe" + struct.pack(">H", 126) + bytes(4) + bytes(126),
    "bad UTF-8": b"\x81\x82" + bytes(4) + b"\xff\xfe",
    "a close code that is none": b"\x88\x82" + bytes(4) + struct.pack(">H", 999),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_a_malformed_frame_closes_the_websocket_and_leaves_an_event(pair: Pair, frame: bytes):
    seen = len(refusals(pair.interlock))
    pair.server.new_executions()
    head = (
        f"GET http://{pair.target}/ws HTTP/1.1\r\nHost: {pair.target}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    send_raw("127.0.0.1", pair.interlock.port, [head.encode(), 0.3, frame], answers=9)
    event = next_refusal(pair.interlock, seen)
    assert (event["kind"], event["reason"], event["server"]) == ("request_refused", "bad_frame", pair.target)
    assert pair.server.new_executions() == []


@pytest.mark.parametrize(
    "data",
    [CALL + b"\n", b"\x00\x01\x02", b"EHLO x\r\n", b"SSH-2.0-x\r\n", b"{", b"*1\r\n$4\r\nPING\r\n"],
    ids=["a line of JSON", "bytes", "SMTP", "SSH", "half a line", "redis"],
)
@pytest.mark.parametrize("in_tunnel", [True, False])
def test_bytes_that_are_not_http_leave_an_event(pair: Pair, data: bytes, in_tunnel: bool):
    seen = len(refusals(pair.interlock))
    connect = pair.target if in_tunnel else None
    send_raw("127.0.0.1", pair.interlock.port, [data], connect=connect, limit=0.5)
    event = next_refusal(pair.interlock, seen)
    assert (event["kind"], event["reason"]) == ("connection_refused", "not_http")


def test_http3_is_not_agreed_to_over_tcp(tmp_path: Path, certificates: Certificates):
    with (
        start_python_server("web", tmp_path / "web", certificates=certificates) as server,
        start_interlock(tmp_path, upstream_ca=certificates.ca_file) as interlock,
    ):
        target = f"127.0.0.1:{server.port}"
        request = f"GET /echo HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
        for offers in [("h3",), ("h3", "http/1.1"), ("h3-29", "h3")]:
            tls = Tls(interlock.ca_file, alpn=offers)
            answer = send_raw("127.0.0.1", interlock.port, [request], connect=target, tls=tls)
            assert parse_answers(answer)[0].status == 200
        assert "crash" not in interlock.errors()
        assert "Traceback" not in interlock.errors()
