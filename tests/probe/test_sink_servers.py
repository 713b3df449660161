"""What the sinks make of requests; what they note is tested in a sinkhole (test_sinkhole.py)."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from proxy.probe.sink_servers import ProbeAuthority, _answer_http, _is_whole_request
from tests.support.timeouts import PATIENCE


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


@pytest.mark.parametrize("name", ["secret.example.com", "192.0.2.7", "2001:db8::7", "a" * 60 + ".example.org"])
def test_a_client_that_trusts_the_authority_believes_any_name(name: str) -> None:
    authority = ProbeAuthority()
    context = ssl.create_default_context(cadata=authority.pem.decode())
    here, there = socket.socketpair()
    served = threading.Thread(target=lambda: authority.context(name).wrap_socket(there, server_side=True).close())
    served.start()
    with context.wrap_socket(here, server_hostname=name) as client:
        assert client.getpeercert()
    served.join(PATIENCE)


def test_a_client_that_does_not_trust_it_goes() -> None:
    authority = ProbeAuthority()
    here, there = socket.socketpair()

    def serve() -> None:
        with pytest.raises(OSError):
            authority.context("a.example").wrap_socket(there, server_side=True)

    served = threading.Thread(target=serve)
    served.start()
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(here, server_hostname="a.example")
    here.close()
    served.join(PATIENCE)


def test_a_name_keeps_its_certificate() -> None:
    authority = ProbeAuthority()
    assert authority.context("a.example") is authority.context("a.example")
