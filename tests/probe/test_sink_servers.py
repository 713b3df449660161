"""What the sinks make of requests; what they note is tested in a sinkhole (test_sinkhole.py)."""

from __future__ import annotations

import pytest

from proxy.probe.sink_servers import _answer_http, _is_whole_request


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\n", False),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", False),
        (b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc", True),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", False),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", True),
        (b"hello", False),
    ],
)
def test_a_request_is_read_to_its_end(data: bytes, whole: bool) -> None:
    assert _is_whole_request(data) is whole


def test_only_http_is_answered() -> None:
    assert _answer_http(b"GET /x HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert _answer_http(b"GET /robots.txt HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 404")
    assert _answer_http(b"SSH-2.0-x\r\n") == b""
