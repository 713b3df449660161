"""Content codings and charsets, bounded."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import WireError
from proxy.wire.content_coding import BROKEN, MAX_MEMBERS, codings, decode_body, decode_text, inflater, odd_charsets

TEXT = b"hello " * 1000


def raw_deflate(data: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return engine.compress(data) + engine.flush()


PACKED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
}


@pytest.mark.parametrize("coding", PACKED)
def test_a_coding_is_undone(coding: str) -> None:
    assert decode_body(PACKED[coding], [coding], len(TEXT)) == TEXT


@pytest.mark.parametrize("coding", PACKED)
def test_one_byte_past_the_limit_is_too_much(coding: str) -> None:
    with pytest.raises(WireError, match="body_too_large"):
        decode_body(PACKED[coding], [coding], len(TEXT) - 1)


@given(st.binary(max_size=300), st.sampled_from(["gzip", "deflate", "raw", "br", "zstd"]), st.integers(1, 40))
def test_chunks_of_any_size_decode_alike(data: bytes, coding: str, size: int) -> None:
    pack = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "raw": raw_deflate,
        "br": brotli.compress,
        "zstd": zstandard.compress,
    }[coding]
    engine = inflater("deflate" if coding == "raw" else coding, 10_000)
    packed = pack(data)
    out = b"".join(engine.feed(packed[i : i + size]) for i in range(0, len(packed), size))
    assert out == data
    assert engine.finished


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_members_are_read_on(coding: str) -> None:
    assert decode_body(PACKED[coding] * 2, [coding], 1 << 20) == TEXT * 2


@pytest.mark.parametrize("coding", PACKED)
def test_a_body_cut_short_is_refused(coding: str) -> None:
    with pytest.raises(WireError, match="encoding_mismatch"):
        decode_body(PACKED[coding][:-2], [coding], 1 << 20)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_garbage_after_a_member_is_refused(coding: str) -> None:
    with pytest.raises(WireError, match="encoding_mismatch"):
        decode_body(PACKED[coding] + b"garbage", [coding], 1 << 20)


@pytest.mark.parametrize("coding", PACKED)
@given(data=st.binary(min_size=1, max_size=100))
def test_no_bytes_make_a_decoder_raise_anything_but_a_wire_error(coding: str, data: bytes) -> None:
    with contextlib.suppress(WireError):
        assert len(decode_body(data, [coding], 1000)) <= 1000


@pytest.mark.parametrize("coding", PACKED)
def test_a_bomb_takes_little_memory(coding: str) -> None:
    nothing = b"\0" * (64 << 20)
    if coding == "br":
        bomb = brotli.compress(nothing, quality=1)
    else:
        pack = {"gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}
        bomb = pack[coding](nothing)
    tracemalloc.start()
    with pytest.raises(WireError, match="body_too_large"):
        decode_body(bomb, [coding], 1 << 16)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20


def test_a_body_of_tiny_members_is_refused() -> None:
    with pytest.raises(WireError, match="encoding_mismatch"):
        decode_body(gzip.compress(b"") * (MAX_MEMBERS + 2), ["gzip"], 1 << 20)


def test_a_long_stream_may_have_many_members() -> None:
    engine = inflater("gzip", 1 << 30)
    member = gzip.compress(b"x")
    assert b"".join(engine.feed(member) for _ in range(MAX_MEMBERS * 2)) == b"x" * MAX_MEMBERS * 2


def test_an_unknown_coding_is_named() -> None:
    with pytest.raises(WireError, match=r"unknown_encoding.*'lzma'"):
        inflater("lzma", 1)


def test_a_broken_stream_raises_one_of_the_broken() -> None:
    with pytest.raises(BROKEN):
        inflater("gzip", 1).feed(b"no gzip at all")


def test_nothing_fed_is_a_finished_body() -> None:
    assert inflater("gzip", 1).finished


def test_codings_are_undone_last_first() -> None:
    assert decode_body(brotli.compress(gzip.compress(TEXT)), ["gzip", "br"], 1 << 20) == TEXT


def test_too_many_codings_are_refused() -> None:
    with pytest.raises(WireError, match="stacked_encoding"):
        decode_body(b"", ["gzip"] * 4, 1)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], []),
        (["identity"], []),
        (["GZIP "], ["gzip"]),
        (["gzip, br", "zstd"], ["gzip", "br", "zstd"]),
        ([",,gzip,"], ["gzip"]),
    ],
)
def test_codings_are_listed_in_order(headers: list[str], expected: list[str]) -> None:
    assert codings(headers) == expected


@pytest.mark.parametrize(
    ("content_types", "expected"),
    [
        ([], []),
        (["application/json"], []),
        (["application/json; charset=utf-8"], []),
        (["text/html; charset=ISO-8859-1", "text/html; charset=windows-1252"], []),
        (['a/b; CHARSET="UTF-16"'], ["utf-16"]),
        (["a/b; charset=utf-16; charset=utf-7"], ["utf-16", "utf-7"]),
        (["a/b; charset=utf-16", "a/b;charset=utf-16"], ["utf-16"]),
        (["a/b; charset=x-none"], ["x-none"]),
        (["a/b; charset=a\0b"], ["a\0b"]),
        (["a/b; charset=\udcff"], ["\udcff"]),
        (["a/b; charset=" + "x" * 100], ["x" * 100]),
    ],
)
def test_charsets_that_may_hide_ascii_are_found(content_types: list[str], expected: list[str]) -> None:
    assert odd_charsets(content_types) == expected


@pytest.mark.parametrize(
    "charset", ["zlib", "idna", "punycode", "undefined", "unicode_escape", "none", "a\0", "\udcff"]
)
def test_what_is_no_charset_gives_no_text(charset: str) -> None:
    assert decode_text(b'{"a":"\\q"}\xff', charset) is None


def test_text_is_read_in_its_charset() -> None:
    assert decode_text("{é".encode("utf-16-le"), "UTF-16LE") == "{é"
