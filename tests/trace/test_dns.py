from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.trace.dns import questions

HEADER = b"\x12\x34\x01\x00\x00%c\x00\x00\x00\x00\x00\x00"


def query(*names: str) -> bytes:
    asked = b"".join(
        b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0\0\1\0\1" for name in names
    )
    return HEADER % len(names) + asked


def test_the_names_of_a_query_are_read() -> None:
    assert questions(query("example.com")) == ["example.com"]
    assert questions(query("a.example", "b.example", "a.example")) == ["a.example", "b.example"]
    assert questions(b"\0\x1d" + query("example.com"), framed=True) == ["example.com"]


def test_an_answer_asks_for_nothing() -> None:
    answer = bytearray(query("example.com"))
    answer[2] |= 0x80
    assert questions(bytes(answer)) == []


def test_a_name_that_is_cut_off_is_given_as_far_as_it_goes() -> None:
    assert questions(query("secret.exfil.example")[:22]) == ["secret.ex"]
    assert questions(query("a")[:12]) == []


def test_a_compressed_name_is_not_followed() -> None:
    assert questions(HEADER % 1 + b"\xc0\x0c\0\1\0\1") == []


def test_a_question_for_the_root_has_a_name() -> None:
    assert questions(HEADER % 1 + b"\0\0\2\0\1") == ["."]


@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_make_it_raise(data: bytes, framed: bool) -> None:
    assert all(isinstance(name, str) for name in questions(data, framed=framed))
