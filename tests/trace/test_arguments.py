from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.trace import arguments
from proxy.trace.arguments import (
    Address,
    Descriptor,
    QuotedString,
    address,
    buffers,
    descriptor,
    flags,
    message,
    messages,
    quoted,
    returned,
    split_arguments,
    words,
)
from proxy.trace.strace import Syscall
from tests.trace.goldens import events_of


def calls(golden: str, name: str) -> list[list[str]]:
    found = [event for event in events_of(golden) if isinstance(event, Syscall) and event.name == name]
    assert found
    return [split_arguments(event.arguments) for event in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("0", ["0"]),
        ('AT_FDCWD</a, b>, "c, d", O_RDONLY', ["AT_FDCWD</a, b>", '"c, d"', "O_RDONLY"]),
        (r'"a\"b, c", [1, 2], {x=3, y=f(4, 5)}', [r'"a\"b, c"', "[1, 2]", "{x=3, y=f(4, 5)}"]),
        ("0<pipe:[1]>, , 4", ["0<pipe:[1]>", "", "4"]),
        ('"cut, off', ['"cut', "off"]),
        ("1, ]]), 2", ["1", "]])", "2"]),
    ],
)
def test_arguments_are_cut_at_their_own_commas(text: str, expected: list[str]) -> None:
    assert split_arguments(text) == expected


def test_escapes_stand_for_bytes() -> None:
    data = [quoted(call[1]) for call in calls("strings", "write")]
    assert data[0] == QuotedString('a\0\x012\n\t"\\é\x7f'.encode(), False)
    assert data[1] == QuotedString(b"0123456789", True)
    assert data[4] == QuotedString(b"", False)


@pytest.mark.parametrize("text", ["NULL", "0x7f0000000000", "[]", '"open', "", "..."])
def test_what_is_no_string_is_none(text: str) -> None:
    assert quoted(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AT_FDCWD</tmp>", Descriptor(None, b"/tmp")),
        ("AT_FDCWD", Descriptor(None, None)),
        ("3</tmp/a\\74b\\76>", Descriptor(3, b"/tmp/a<b>")),
        ("4</memfd:evil>(deleted)", Descriptor(4, b"/memfd:evil", True)),
        ("5", Descriptor(5, None)),
        ("-1", Descriptor(-1, None)),
        ("NULL", None),
        ("3<open", None),
    ],
)
def test_a_descriptor_is_read_with_its_path(text: str, expected: Descriptor | None) -> None:
    assert descriptor(text) == expected


def test_a_pipe_and_a_socket_have_inodes() -> None:
    assert Descriptor(0, b"pipe:[77]").inode == ("pipe", 77)
    assert Descriptor(0, b"socket:[78]").inode == ("socket", 78)
    assert Descriptor(0, b"/tmp/pipe:[77]").inode is None


def test_the_returned_descriptor_is_where_a_link_led() -> None:
    opened = [event for event in events_of("resolved_paths") if isinstance(event, Syscall) and "link" in event.line]
    assert returned(opened[-1].value, opened[-1].returned) == Descriptor(3, b"/etc/hostname")
    assert returned(None, None) is None


def test_the_words_of_a_program_are_read() -> None:
    shell = calls("vfork", "execve")[0]
    assert words(shell[1]) == (
        QuotedString(b"/bin/sh", False),
        QuotedString(b"-c", False),
        QuotedString(b"echo hi > /tmp/tr/out; cat /etc/hosts >/dev/null", False),
    )
    assert words('["a", "b"..., ...]') == (QuotedString(b"a", False), QuotedString(b"b", True), QuotedString(b"", True))
    assert words("NULL") is None
    assert words("[]") == ()


def test_flags_are_names() -> None:
    assert flags("O_RDWR|O_CREAT") == {"O_RDWR", "O_CREAT"}
    assert flags("flags=CLONE_VM|CLONE_THREAD") == {"CLONE_VM", "CLONE_THREAD"}


def test_addresses_of_every_family_are_read() -> None:
    found = [address(call[1]) for name in ("connect", "bind") for call in calls("addresses", name)]
    assert Address("AF_INET", "127.0.0.1", 9) in found
    assert Address("AF_INET6", "::1", 9) in found
    assert Address("AF_UNIX", path=b"/tmp/x.sock") in found
    assert Address("AF_UNIX", path=b"abs", abstract=True) in found
    assert Address("AF_NETLINK") in found
    sent = [address(call[4]) for call in calls("addresses", "sendto")]
    assert Address("AF_INET6", "::ffff:127.0.0.1", 99) in sent
    assert address("NULL") is None
    assert address("{sa_family=0x2c}") == Address("0x2c")
    assert address("{sa_family=AF_UNIX}") == Address("AF_UNIX")


def test_each_query_of_one_sendmmsg_is_read() -> None:
    (call,) = calls("dns", "sendmmsg")
    sent = messages(call[1])
    assert [len(each.parts[0].data) for each in sent] == [29, 29]
    assert all(b"\x07example\x03com\x00" in each.parts[0].data for each in sent)
    assert messages("NULL") == ()


def test_vectors_are_read_part_by_part() -> None:
    (written,) = calls("vectors", "writev")
    assert [part.data for part in buffers(written[1])] == [b"hello\n", b"w" * 20 + b"\n"]
    (sent,) = calls("vectors", "sendmsg")
    assert message(sent[1]) == (None, (QuotedString(b"one", False), QuotedString(b"two", False)))
    named = '{msg_name={sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("1.2.3.4")}, msg_iov=[{iov_base="x"'
    assert message(named) == (Address("AF_INET", "1.2.3.4", 53), (QuotedString(b"x", False),))


@given(st.lists(st.sampled_from(['"a, b"', "3</x, y>", "O_RDONLY|O_CREAT", "NULL", "0644", r'"\\", "', "", "1<<2"])))
def test_arguments_without_brackets_are_cut_fast_and_in_the_same_way(parts: list[str]) -> None:
    text = ", ".join(parts)
    assert split_arguments(text) == arguments._split_nested(text)


READERS = [split_arguments, quoted, descriptor, words, flags, address, buffers, message, messages]


@given(st.text(st.sampled_from('ab09[]{}(),<>"\\=. @x_') | st.characters(), max_size=60))
def test_no_text_makes_them_raise(text: str) -> None:
    for read in READERS:
        read(text)
    arguments.unescape(text)
