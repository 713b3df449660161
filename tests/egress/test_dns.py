"""Questions are read, answers spelt, and names known again by their addresses."""

from __future__ import annotations

import ipaddress
import struct

import pytest

from proxy.egress.dns import AAAA, SERVER_FAILURE, NameBook, is_query, make_answer, read_question

NAMES = ipaddress.ip_network("11.64.0.0/29"), ipaddress.ip_network("fd00::/96")


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(label.encode())]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def test_a_question_is_read() -> None:
    data = query("a1b2.evil.example", 16)
    assert read_question(data) == ("a1b2.evil.example", 16, len(data))
    assert is_query(data)


@pytest.mark.parametrize("data", [b"", b"\0" * 12, query("a.b")[:14], query("a.b")[:-3], b"\0" * 12 + b"\xc0\x0c"])
def test_what_is_no_question_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        read_question(data)


def test_an_answer_two_questions_and_another_operation_are_no_query() -> None:
    data = query("a.b")
    assert not is_query(data[:2] + b"\x81" + data[3:])
    assert not is_query(data[:4] + b"\0\2" + data[6:])
    assert not is_query(data[:2] + b"\x28" + data[3:])
    assert not is_query(data[:8])


@pytest.mark.parametrize("address", ["11.64.0.9", "fd00::9"])
def test_an_answer_holds_the_address_of_either_version(address: str) -> None:
    data = query("a.example")
    answer = make_answer(data, len(data), address)
    packed = ipaddress.ip_address(address).packed
    assert answer[:2] == data[:2]
    assert struct.unpack_from("!HH", answer, 4) == (1, 1)
    kind, _, _, length = struct.unpack_from("!HHLH", answer, len(data) + 2)
    assert (kind, length) == ({4: 1, 16: AAAA}[len(packed)], len(packed))
    assert answer.endswith(packed)


def test_there_is_nothing_of_other_types_and_a_failure_is_told() -> None:
    data = query("a.example", 28)
    assert struct.unpack_from("!HH", make_answer(data, len(data)), 4) == (1, 0)
    assert make_answer(data, len(data), code=SERVER_FAILURE)[3] & 0x0F == SERVER_FAILURE


def test_names_have_addresses_of_their_own_and_are_known_again() -> None:
    book = NameBook(*NAMES)
    first, second = book.addresses("a.example"), book.addresses("b.example")
    assert (first, second) == (("11.64.0.1", "fd00::1"), ("11.64.0.2", "fd00::2"))
    assert book.addresses("a.example") == first
    assert book.name("11.64.0.2") == book.name("fd00::2") == "b.example"
    assert book.name("11.64.0.3") is book.name("11.64.0.0") is book.name("10.0.0.1") is None
    assert book.covers("11.64.0.7")
    assert not book.covers("11.64.0.8")


def test_no_address_stands_for_two_names() -> None:
    book = NameBook(*NAMES)
    for number in range(6):
        assert book.addresses(f"{number}.example") is not None
    assert book.addresses("one.more") is None
    assert book.addresses("0.example") == ("11.64.0.1", "fd00::1")
