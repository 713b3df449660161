"""Messages on lines."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import WireError
from proxy.wire.stdio_lines import EDGE, LineSplitter, TooLong, as_line, edge_id

type Cut = bytes | TooLong


def cut(*pieces: bytes, limit: int = 100) -> list[Cut]:
    splitter = LineSplitter(limit)
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    return [*lines, *splitter.end()]


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b", b"\n", b"c\nd", b"e\n"], [b"ab", b"c", b"de"]),
        ([b"a\r\nb\r\n"], [b"a\r", b"b\r"]),
        ([b"a\rb\n"], [b"a\rb"]),
        ([b"\n\n \t\r\na\n"], [b"a"]),
        ([b"a\nlast"], [b"a", b"last"]),
        ([], []),
    ],
)
def test_lines_end_at_a_line_feed_and_nowhere_else(pieces: list[bytes], lines: list[bytes]) -> None:
    assert cut(*pieces) == lines


def test_a_line_past_the_limit_is_told_and_only_its_edges_are_kept() -> None:
    splitter = LineSplitter(1000)
    assert list(splitter.feed(b"a" * 900)) == []
    for _ in range(50):
        assert list(splitter.feed(b"b" * 1000)) == []
    assert splitter._pieces == []
    assert list(splitter.feed(b"c" * 10 + b"\nok\n")) == [TooLong(b"a" * EDGE, b"b" * (EDGE - 10) + b"c" * 10), b"ok"]
    assert cut(b"x" * 10 + b"\n", limit=10) == [b"x" * 10]
    assert cut(b"x" * 11, limit=10) == [TooLong(b"x" * 11, b"x" * 11)]
    assert cut(b"x" * 11 + b"\n" + b"y" * 11 + b"\n", limit=10) == [TooLong(c * 11, c * 11) for c in (b"x", b"y")]


@pytest.mark.parametrize(
    ("line", "message_id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"x":', 7),
        (b'{ "jsonrpc" : "2.0", "id" : "a b", "result":', "a b"),
        (b'{"id":-3,"result":', -3),
        (b'"x":1},"jsonrpc":"2.0","id":8}', 8),
        (b'"x":1},"id":"\xc3\xa9" } ', "é"),
        (b'{"result":{"id":5,"x":', None),
        (b'{"result":[{"a":1,"id":5}]}', None),
        (b'{"result":{"x":1,"id":5}', 5),
        (b'{"jsonrpc":"2.0","id":1.5,"result":', None),
        (b'{"jsonrpc":"2.0","id":null,"result":', None),
        (b'{"jsonrpc":"2.0","id":"a\\u0041","result":', None),
        (b"chatter", None),
    ],
)
def test_an_id_is_told_where_it_stands_first_or_last(line: bytes, message_id: object) -> None:
    assert edge_id(line) == message_id
    assert edge_id(TooLong(line, line)) == message_id


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_a_value_is_one_line_to_every_reader_and_in_every_charset(value: object) -> None:
    line = as_line(value)  # type: ignore[arg-type]
    assert json.loads(line) == value
    assert line.isascii()
    for charset in ("utf-8", "latin-1", "cp932", "gbk"):
        text = line.decode(charset)
        assert len(text.splitlines()) == 1
        assert len(list(io.TextIOWrapper(io.BytesIO(line), charset))) == 1


def test_what_is_no_number_of_jsons_is_refused() -> None:
    with pytest.raises(WireError, match="not_finite"):
        as_line({"x": float("nan")})


@given(st.binary(max_size=40).map(lambda data: data.replace(b"x", b"\n")), st.integers(1, 9))
def test_it_is_known_where_the_last_line_ended(data: bytes, size: int) -> None:
    splitter = LineSplitter(5)
    for start in range(0, len(data), size):
        for _ in splitter.feed(data[start : start + size]):
            assert data[splitter.ended - 1 : splitter.ended] == b"\n"
    assert splitter.ended == data.rfind(b"\n") + 1
