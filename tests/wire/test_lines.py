"""Messages on lines."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import WireError
from proxy.wire.lines import TOO_LONG, LineSplitter, TooLong, as_line

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


def test_a_line_past_the_limit_is_told_and_not_kept() -> None:
    splitter = LineSplitter(10)
    assert list(splitter.feed(b"x" * 11)) == []
    assert list(splitter.feed(b"y" * 1000)) == []
    assert splitter._pieces == []
    assert list(splitter.feed(b"z\nok\n")) == [TOO_LONG, b"ok"]
    assert cut(b"x" * 10 + b"\n", limit=10) == [b"x" * 10]
    assert cut(b"x" * 11, limit=10) == [TOO_LONG]


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
