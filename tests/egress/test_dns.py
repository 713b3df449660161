"""Queries are read, answers written, and names found again by their addresses; dnspython is the reference."""

from __future__ import annotations

import ipaddress
import struct

import dns.flags
import dns.message
import dns.rcode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.egress.dns import AAAA, SERVER_FAILURE, FakeAddresses, is_query, make_answer, query_names, read_question

NAMES = ipaddress.ip_network("11.64.0.0/29"), ipaddress.ip_network("fd00::/96")


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(label.encode())]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


HEAD = b"\x12\x34\x01\x00\x00%c\x00\x00\x00\x00\x00\x00"


def asking(*names: str) -> bytes:
    """Return a query with several questions."""
    return HEAD % len(names) + b"".join(query(name)[12:] for name in names)


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
    fakes = FakeAddresses(*NAMES)
    first, second = fakes.assign("a.example"), fakes.assign("b.example")
    assert (first, second) == (("11.64.0.1", "fd00::1"), ("11.64.0.2", "fd00::2"))
    assert fakes.assign("a.example") == first
    assert fakes.name("11.64.0.2") == fakes.name("fd00::2") == "b.example"
    assert fakes.name("11.64.0.3") is fakes.name("11.64.0.0") is fakes.name("10.0.0.1") is None
    assert fakes.covers("11.64.0.7")
    assert not fakes.covers("11.64.0.8")


def test_no_address_stands_for_two_names() -> None:
    fakes = FakeAddresses(*NAMES)
    for number in range(6):
        assert fakes.assign(f"{number}.example") is not None
    assert fakes.assign("one.more") is None
    assert fakes.assign("0.example") == ("11.64.0.1", "fd00::1")


def test_the_names_of_a_query_are_read() -> None:
    assert query_names(asking("example.com")) == ["example.com"]
    assert query_names(asking("a.example", "b.example", "a.example")) == ["a.example", "b.example"]
    assert query_names(b"\0\x1d" + asking("example.com"), framed=True) == ["example.com"]


def test_an_answer_asks_for_nothing() -> None:
    answer = bytearray(asking("example.com"))
    answer[2] |= 0x80
    assert query_names(bytes(answer)) == []


def test_a_name_that_is_cut_off_is_given_as_far_as_it_goes() -> None:
    assert query_names(asking("secret.exfil.example")[:22]) == ["secret.ex"]
    assert query_names(asking("a")[:12]) == []


def test_a_compressed_name_is_not_followed() -> None:
    assert query_names(HEAD % 1 + b"\xc0\x0c\0\1\0\1") == []


def test_a_question_for_the_root_has_a_name() -> None:
    assert query_names(HEAD % 1 + b"\0\0\2\0\1") == ["."]


@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_make_it_raise(data: bytes, framed: bool) -> None:
    assert all(isinstance(name, str) for name in query_names(data, framed=framed))


LABEL = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=20)


@given(st.lists(LABEL, min_size=1, max_size=8), st.sampled_from(["A", "AAAA", "TXT", "MX", "HTTPS"]), st.booleans())
def test_a_query_is_read_as_dnspython_wrote_it(labels: list[str], kind: str, edns: bool) -> None:
    name = ".".join(labels)
    made = dns.message.make_query(name, kind, use_edns=0 if edns else -1)
    data = made.to_wire()
    assert is_query(data)
    assert read_question(data)[:2] == (name, int(made.question[0].rdtype))
    assert query_names(data) == [name]
    assert query_names(len(data).to_bytes(2) + data, framed=True) == [name]


@pytest.mark.parametrize(("address", "kind"), [("11.64.0.9", "A"), ("fd00::9", "AAAA"), (None, "TXT")])
def test_dnspython_takes_an_answer_for_an_answer_to_its_query(address: str | None, kind: str) -> None:
    made = dns.message.make_query("a.example", kind, use_edns=-1)
    data = made.to_wire()
    answer = dns.message.from_wire(make_answer(data, read_question(data).end, address))
    assert made.is_response(answer)
    assert answer.flags & dns.flags.RA
    assert [str(record) for each in answer.answer for record in each] == ([address] if address else [])


def test_dnspython_reads_a_failure() -> None:
    data = dns.message.make_query("a.example", "A").to_wire()
    answer = dns.message.from_wire(make_answer(data, read_question(data).end, code=SERVER_FAILURE))
    assert answer.rcode() == dns.rcode.SERVFAIL
