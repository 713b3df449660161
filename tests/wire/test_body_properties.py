"""Reading bodies of any form: nothing hides a tool call, nothing raises, nothing takes long."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.body import NotMcp, RefusedBody, read_body
from tests.wire.test_body import CALL, ENCODERS, JSON_TYPE

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ARGUMENTS = st.dictionaries(NAMES, st.none() | st.integers(-(10**19), 10**19) | NAMES, max_size=4)
CALLS = st.builds(
    lambda name, arguments, request_id: CALL | {"id": request_id, "params": {"name": name, "arguments": arguments}},
    NAMES,
    ARGUMENTS,
    st.integers(0, 10**9) | NAMES,
)
type Dressed = tuple[bytes, list[str], list[str]]


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" if c.isalpha() and c.isascii() else c for c in text)


def _escape_strings(call: Any) -> str:
    """Spell a message with its keys and ASCII strings as escapes."""
    if isinstance(call, dict):
        return "{" + ",".join(f"{_escape_strings(k)}:{_escape_strings(v)}" for k, v in call.items()) + "}"
    text = json.dumps(call)
    return _escaped(text) if isinstance(call, str) and "\\" not in text else text


DRESSES: list[Callable[[str], Dressed]] = [
    lambda text: (text.encode(), [], []),
    *[
        (lambda text, codec=codec: (text.encode(codec), [], []))
        for codec in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-8-sig")
    ],
    *[
        (
            lambda text, codec=codec: (
                gzip.compress(text.encode(codec)),
                [f"application/json; charset={codec}"],
                ["gzip"],
            )
        )
        for codec in ("utf-16", "utf-32-be", "utf-7")
    ],
    *[(lambda text, pair=pair: (pair[1](text.encode()), [], [pair[0]])) for pair in ENCODERS.values()],
    lambda text: (gzip.compress(text.encode()[:9]) + gzip.compress(text.encode()[9:]), [], ["gzip"]),
    lambda text: (brotli.compress(zlib.compress(text.encode())), [], ["deflate", "br"]),
    lambda text: (text.encode(), [], ["gzip"]),
    lambda text: (_escape_strings(json.loads(text)).encode(), [], []),
    lambda text: (f'{{"method":"x",{text[1:]}'.encode(), [], []),
    lambda text: (f'{text[:-1]},"params":{{"name":"y"}}}}'.encode(), [], []),
    lambda text: (f"[{text}]".encode(), [], []),
    lambda text: (f"[[1,[{text}]]]".encode(), [], []),
    lambda text: (f"{text}]]".encode(), [], []),
    lambda text: (f"{text}\0".encode(), [], []),
    lambda text: (f" \n\ufeff\u3000\v{text}".encode(), [], []),
    lambda text: (json.dumps(text).encode(), [], []),
]


@settings(max_examples=300)
@given(CALLS, st.sampled_from(DRESSES), st.booleans())
def test_no_dress_makes_a_tool_call_foreign(call: Any, dress: Callable[[str], Dressed], ascii_only: bool) -> None:
    body, content_types, encodings = dress(json.dumps(call, ensure_ascii=ascii_only))
    assert not isinstance(read_body(body, content_types=content_types, encodings=encodings), NotMcp)


HEADERS = st.lists(
    st.sampled_from(["gzip", "br", "deflate", "zstd", "x", ""]) | st.text(max_size=20),
    max_size=3,
)
TYPES = st.lists(
    st.text(max_size=30)
    | st.builds(
        "{}; charset={}".format,
        st.sampled_from(["application/json", "a/b"]),
        st.sampled_from(["utf-16", "utf-7", "idna", "zlib", "unicode_escape", "hz"]) | st.text(max_size=8),
    ),
    max_size=2,
)
BYTES = st.binary(max_size=200) | st.builds(
    lambda head, tail: head + tail, st.sampled_from([b"{", b"[", b'"']), st.binary()
)


@settings(max_examples=300)
@given(BYTES, TYPES, HEADERS)
def test_no_bytes_and_no_headers_make_the_reader_raise(body: bytes, types: list[str], encodings: list[str]) -> None:
    read_body(body, content_types=types, encodings=encodings, limit=10_000)


BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "br": lambda blanks: brotli.compress(blanks, quality=1),
    "zstd": zstandard.compress,
    "deflate": zlib.compress,
}


@pytest.mark.parametrize("coding", BOMBS)
def test_a_decompression_bomb_is_refused(coding: str) -> None:
    bomb = BOMBS[coding](b" " * (16 << 20))
    reading = read_body(bomb, content_types=JSON_TYPE, encodings=[coding], limit=1 << 20)
    assert isinstance(reading, RefusedBody)
    assert reading.reason == "body_too_large"


@pytest.mark.parametrize(
    ("body", "encodings"),
    [
        (b"[]" * (1 << 20), []),
        (b'"' + b" " * (1 << 21), []),
        (b"{" * (1 << 21), []),
        (b'["tools/' + b"a" * (1 << 21), []),
        (b"\x03\x00" * (1 << 20), ["deflate"]),
        (gzip.compress(b"") * (1 << 16), ["gzip"]),
        (zstandard.compress(b"") * (1 << 17), ["zstd"]),
    ],
    ids=["values", "spaces", "braces", "word", "deflate members", "gzip members", "zstd frames"],
)
def test_two_megabytes_of_nonsense_take_no_long_time(body: bytes, encodings: list[str]) -> None:
    started = time.process_time()
    read_body(body, content_types=JSON_TYPE, encodings=encodings, limit=1 << 24)
    assert time.process_time() - started < 5
