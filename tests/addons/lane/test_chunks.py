"""A chunked body is read alike however it is cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.lane.chunks import MAX_LINE, ChunkReader
from tests.addons.lane.grammar import compare_chunks


def read(pieces: Sequence[bytes]) -> tuple[bytes, ChunkReader]:
    reader = ChunkReader()
    return b"".join(map(reader.feed, pieces)), reader


@given(
    parts=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    extension=st.sampled_from([b"", b";a=b", b"; a"]),
    trailers=st.sampled_from([b"", b"X: 1\r\n", b"X: 1\r\nY: 2\r\n"]),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_chunks_are_read_however_they_are_cut(
    parts: list[bytes], extension: bytes, trailers: bytes, cuts: list[int]
) -> None:
    whole = b"".join(b"%X%s\r\n%s\r\n" % (len(part), extension, part) for part in parts) + b"0\r\n" + trailers + b"\r\n"
    places = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    body, reader = read([whole[start:end] for start, end in pairwise(places)])
    assert (body, reader.ended, reader.broken, reader.surplus) == (b"".join(parts), True, False, b"")


def test_what_follows_the_end_is_kept_apart() -> None:
    body, reader = read([b"1\r\na\r\n0\r\n\r\nmore"])
    assert (body, reader.ended, reader.surplus) == (b"a", True, b"more")


@pytest.mark.parametrize(
    "odd",
    [b"zz\r\n", b"-1\r\n", b"\n", b"1\n", b"1\r\nab\r\n", b"1\r\na\rX", b"123456789\r\n", b"1" * (MAX_LINE + 1)],
)
def test_what_is_no_chunk_is_broken_and_what_came_before_it_counts(odd: bytes) -> None:
    body, reader = read([b"2\r\nok\r\n" + odd])
    assert body.startswith(b"ok")
    assert reader.broken
    assert not reader.ended
    assert reader.feed(b"1\r\nx\r\n") == b""


def test_trailers_are_bounded() -> None:
    _, reader = read([b"0\r\nX: " + b"y" * (2 * MAX_LINE)])
    assert reader.broken


def test_a_body_that_ends_is_the_one_that_the_layers_read() -> None:
    assert compare_chunks(3_000, 1) > 1_000


@pytest.mark.parametrize(
    "end", [b"0\r\nX\0: 1\r\n\r\n", b"0\r\nno field\r\n\r\n", b"0\r\n x: 1\r\n\r\n", b"0 ;a\r\n\r\n"]
)
def test_lines_after_the_last_chunk_that_are_no_trailers_break_the_body(end: bytes) -> None:
    reader = ChunkReader()
    assert reader.feed(b"1\r\na\r\n" + end) == b"a"
    assert (reader.ended, reader.broken) == (False, True)
