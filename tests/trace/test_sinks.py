"""What the sinks make of names; what they note is tested in a sinkhole (test_sinkhole.py)."""

from __future__ import annotations

import struct

import pytest

from proxy.trace.sinks import NAMES, NameBook, _answer_http, _is_whole_request, make_answer, read_question


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def test_a_question_is_read() -> None:
    data = query("a1b2.evil.example", 16)
    assert read_question(data) == ("a1b2.evil.example", 16, len(data))


@pytest.mark.parametrize("data", [b"", b"\0" * 12, query("a.b")[:14], query("a.b")[:-3], b"\0" * 12 + b"\xc0\x0c"])
def test_what_is_no_question_is_refused(data: bytes) -> None:
    with pytest.raises((IndexError, ValueError, struct.error)):
        read_question(data)


def test_an_answer_holds_the_address() -> None:
    data = query("a.example")
    answer = make_answer(data, len(data), "11.64.0.9")
    assert answer[:2] == data[:2]
    assert struct.unpack_from("!HH", answer, 4) == (1, 1)
    assert answer.endswith(bytes([11, 64, 0, 9]))


def test_there_is_nothing_of_other_types() -> None:
    data = query("a.example", 28)
    assert struct.unpack_from("!HH", make_answer(data, len(data), None), 4) == (1, 0)


def test_names_have_addresses_of_their_own_and_are_known_again() -> None:
    book = NameBook()
    first, second = book.address("a.example"), book.address("b.example")
    assert first != second
    assert book.address("a.example") == first
    assert book.name(second) == "b.example"
    assert book.name("10.0.0.1") is None
    assert NAMES[1].compressed == first


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
