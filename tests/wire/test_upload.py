"""Large uploads, looked through as they pass."""

from __future__ import annotations

import gzip
import json

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.upload import HEAD, UploadScanner

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "danger", "arguments": {"x": "y" * 5000}}}
TEXT = json.dumps(CALL)
BODY = TEXT.encode()
LIMIT = 1 << 24


def passes(body: bytes, size: int = 1000, types: list[str] | None = None, encodings: list[str] | None = None) -> bool:
    """Return whether the whole of `body` gets through, chunk by chunk."""
    scanner = UploadScanner(types or [], encodings or [], LIMIT)
    return all(scanner.passes(body[i : i + size]) for i in range(0, len(body), size))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 1 << 20])
@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-32-be", "utf-32-le"])
def test_a_message_is_stopped_however_it_is_cut(codec: str, size: int) -> None:
    assert not passes(TEXT[:200].encode(codec), size)


@given(st.integers(0, 9), st.integers(1, 40), st.sampled_from(["utf-16-le", "utf-32-le", "utf-32-be", "utf-8"]))
def test_a_message_is_stopped_wherever_the_first_cut_falls(offset: int, size: int, codec: str) -> None:
    body = (" " * offset + '{"a":"' + "p" * 500 + '",' + TEXT[1:120]).encode(codec)
    assert not passes(body, size)


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("tools/call", "tools\\u002fcall"),
        TEXT.replace("jsonrpc", "\\u006asonrpc"),
        f"[{TEXT}]",
        f"{{}}\n{TEXT}",
        f"1 {TEXT}",
        f"true\n{TEXT}",
        "1 " * HEAD + TEXT,
        TEXT.replace("jsonrpc", "j\\sonrpc").replace("tools/call", "tools/c\\all"),
        TEXT.replace("jsonrpc", "\\x6asonrpc").replace("tools/call", "\\x74ools/call"),
        TEXT.replace('"', ""),
        "{id: 1, method: tools/call}",
        "# x\nmethod: tools/call\nparams: {}\n",
        ")]}'\n" + TEXT,
        "x\n" * HEAD + TEXT,
        "\x89PNG\n" + "y" * HEAD + "\n" + TEXT,
    ],
)
def test_another_spelling_is_stopped(text: str) -> None:
    assert not passes(text.encode())


@pytest.mark.parametrize("size", [10, 1000])
def test_a_call_in_the_fields_of_a_form_is_stopped(size: int) -> None:
    body = b"x=" + b"y" * 5000 + b"&method=tools/call&params[name]=danger"
    assert not passes(body, size, ["application/x-www-form-urlencoded"])


@pytest.mark.parametrize(("coding", "encode"), [("gzip", gzip.compress), ("br", brotli.compress)])
def test_an_encoded_message_is_stopped(coding: str, encode: object) -> None:
    assert not passes(encode(BODY), 10, encodings=[coding])  # type: ignore[operator]


@pytest.mark.parametrize(
    ("body", "types", "encodings"),
    [
        (b"anything", ["text/plain; charset=utf-16"], []),
        (b"anything", [], ["lzma"]),
        (b"no gzip", [], ["gzip"]),
        (BODY, [], ["gzip"]),
    ],
    ids=["odd charset", "unknown coding", "broken coding", "lie"],
)
def test_what_cannot_be_looked_through_is_stopped(body: bytes, types: list[str], encodings: list[str]) -> None:
    assert not passes(body, types=types, encodings=encodings)


@pytest.mark.parametrize("filler", [b" ", b"\n", b"\0", b"\x0c", b"\xef\xbb\xbf", b"\xc2\xa0"])
def test_a_message_does_not_hide_behind_filler(filler: bytes) -> None:
    assert not passes(filler * (2 * HEAD) + BODY)


@pytest.mark.parametrize(
    "body",
    [
        b"\x89PNG\r\n" + bytes(range(256)) * 200,
        b"--boundary\r\n\r\nPOST " + BODY,
        b"const call = { method: 'tools/call' };\n" * 100,
        json.dumps({"rows": ["x" * 50] * 1000}).encode(),
        b'plain text that says "tools/call"' * 300,
        b" " * 100 + b"text",
    ],
    ids=["binary", "multipart", "source", "JSON", "text", "spaces"],
)
def test_an_ordinary_upload_passes(body: bytes) -> None:
    assert passes(body)
    assert passes(gzip.compress(body), encodings=["gzip"])


def test_once_stopped_an_upload_stays_stopped() -> None:
    scanner = UploadScanner([], [], LIMIT)
    assert scanner.passes(b"{ ")
    assert not scanner.passes(b'"jsonrpc"')
    assert not scanner.passes(b"harmless")


def test_what_an_upload_decodes_to_is_bounded() -> None:
    scanner = UploadScanner([], ["gzip"], 1000)
    assert not scanner.passes(gzip.compress(b"x" * 2000))
