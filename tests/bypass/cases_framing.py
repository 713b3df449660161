"""Cases that play with framing: chunks, lengths, lines, and where segments end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.bypass.shot import Case, Shot
from tests.support.raw_socket import Segment

CRLF = b"\r\n"
WAITS = "to the proxy the message is not complete: it waits for the rest until its deadline"


def chunked(
    shot: Shot,
    body: bytes | None = None,
    *,
    header: str = "Transfer-Encoding: chunked",
    extension: bytes = b"",
    trailer: bytes = b"",
    size: int = 40,
    newline: bytes = CRLF,
    prefix: bytes = b"",
) -> bytes:
    """Write the request in chunks of `size` bytes."""
    data = shot.text().encode() if body is None else body
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    chunks = b"".join(prefix + b"%x" % len(piece) + extension + newline + piece + newline for piece in pieces)
    head = shot.head().removesuffix("\r\n") + header + "\r\n\r\n"
    return head.encode() + chunks + b"0" + newline + trailer + newline


def _framings() -> Iterator[Case]:
    def piece(name: str, tries: str, build: Callable[[Shot], bytes], **rest: Any) -> Case:
        return Case(f"chunked-{name}", tries, build=build, limit=8.0, **rest)

    yield piece("plain", "Chunks of 40 bytes", chunked, benign="runs", answer="denial")
    yield piece("bytes", "Chunks of one byte", lambda s: chunked(s, size=1), benign="runs", answer="denial")
    yield piece("extension", "Chunk extensions", lambda s: chunked(s, extension=b';a="b"'), benign="runs")
    yield piece("trailer", "A trailer", lambda s: chunked(s, trailer=b"X-Trailer: 1\r\n"))
    yield piece("trailer-length", "A Content-Length trailer", lambda s: chunked(s, trailer=b"Content-Length: 5\r\n"))
    yield piece("lf", "Chunks that end in bare LF", lambda s: chunked(s, newline=b"\n"), hangs=WAITS)
    yield piece("zeros", "Chunk sizes with leading zeros", lambda s: chunked(s, prefix=b"000"))
    yield piece("hex-prefix", "Chunk sizes with 0x", lambda s: chunked(s, prefix=b"0x"), toothless="reads as 0")
    for name, value in {
        "upper": "CHUNKED", "identity": "identity, chunked", "identity-after": "chunked, identity", "junk": "xchunked",
        "tab": "\tchunked", "vertical-tab": "\x0bchunked", "quoted": '"chunked"', "twice": "chunked, chunked",
    }.items():  # fmt: skip
        yield piece(
            f"te-{name}",
            f"Transfer-Encoding: {value!r}",
            lambda s, v=value: chunked(s, header=f"Transfer-Encoding: {v}"),  # type: ignore[misc]
        )
    yield piece(
        "te-two-lines",
        "Transfer-Encoding twice",
        lambda s: chunked(s, header="Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"),
    )
    yield piece("te-blank", "A blank before the colon", lambda s: chunked(s, header="Transfer-Encoding : chunked"))
    yield piece(
        "te-cl", "Transfer-Encoding and Content-Length",
        lambda s: chunked(s, header="Content-Length: 5\r\nTransfer-Encoding: chunked"),
    )  # fmt: skip
    yield piece(
        "cl-te", "Content-Length after Transfer-Encoding",
        lambda s: chunked(s, header="Transfer-Encoding: chunked\r\nContent-Length: 5"),
    )  # fmt: skip


def _lengths() -> Iterator[Case]:
    def length(name: str, tries: str, header: Callable[[int], str]) -> Case:
        def build(shot: Shot) -> bytes:
            body = shot.text().encode()
            return (shot.head().removesuffix("\r\n") + header(len(body)) + "\r\n\r\n").encode("latin-1") + body

        return Case(f"length-{name}", tries, build=build, limit=8.0)

    yield length("twice", "Content-Length twice", lambda n: f"Content-Length: {n}\r\nContent-Length: {n}")
    yield length("two", "Two different lengths", lambda n: f"Content-Length: 0\r\nContent-Length: {n}")
    yield length("two-reversed", "Two lengths, 0 last", lambda n: f"Content-Length: {n}\r\nContent-Length: 0")
    yield length("list", "A list of lengths", lambda n: f"Content-Length: {n}, {n}")
    yield length("plus", "A length with a sign", lambda n: f"Content-Length: +{n}")
    yield length("blank", "A blank before the colon", lambda n: f"Content-Length : {n}")
    yield length("fold", "A folded length", lambda n: f"Content-Length:\r\n {n}")
    yield length("underscore", "A length with an underscore", lambda n: f"Content-Length: 0_{n}")
    yield length("zeros", "A length with leading zeros", lambda n: f"Content-Length: 000{n}")
    yield length("bare-lf", "A length hidden behind a bare LF", lambda n: f"X-A: 1\nContent-Length: {n}")
    yield length("bare-cr", "A length hidden behind a bare CR", lambda n: f"X-A: 1\rContent-Length: {n}")
    yield length("nul", "A NUL in a header before", lambda n: f"X-A: a\x00b\r\nContent-Length: {n}")


def _lines() -> Iterator[Case]:
    def line(name: str, tries: str, build: Callable[[Shot], bytes | Sequence[Segment]], **rest: Any) -> Case:
        return Case(f"line-{name}", tries, build=build, limit=8.0, **rest)

    yield line("lf", "Bare LF everywhere", lambda s: s.request().replace(CRLF, b"\n"))
    yield line("crlf-first", "CRLF before the request", lambda s: CRLF + s.request(), hangs=WAITS)
    yield line("crlf-many", "Many CRLFs before the request", lambda s: CRLF * 50 + s.request(), hangs=WAITS)
    yield line("lf-first", "LF before the request", lambda s: b"\n" + s.request(), hangs=WAITS)
    yield line("fold", "A folded header", lambda s: s.request(headers=[("X-A", "1\r\n 2")]))
    yield line("http10", "HTTP/1.0", lambda s: s.request(version="HTTP/1.0"))
    yield line("http12", "HTTP/1.2", lambda s: s.request(version="HTTP/1.2"))
    yield line("http2", "HTTP/2.0 as text", lambda s: s.request(version="HTTP/2.0"))
    yield line("http-lower", "http/1.1", lambda s: s.request(version="http/1.1"))
    yield line("no-version", "No version", lambda s: s.request().replace(b" HTTP/1.1", b"", 1))
    yield line("tabs", "Tabs in the request line", lambda s: s.request().replace(b" HTTP/1.1", b"\tHTTP/1.1", 1))
    yield line("blanks", "Blanks before the method", lambda s: b"  " + s.request())
    yield line("many", "2000 headers", lambda s: s.request(headers=[(f"X-{i}", "1") for i in range(2000)]))
    yield line("long", "A 60 kB header", lambda s: s.request(headers=[("X-A", "a" * 60_000)]))
    yield line("eight-bit", "Eight-bit bytes in a header", lambda s: s.request(headers=[("X-A", "\xff\xfe")]))
    yield line("smuggle-header", "A header without a colon", lambda s: s.request(headers=[("X-A\r\nnonsense", "1")]))


def _segments() -> Iterator[Case]:
    def split(name: str, tries: str, build: Callable[[Shot], Sequence[Segment]]) -> Case:
        return Case(f"split-{name}", tries, build=build, benign="runs", answer="denial", limit=6.0)

    def cut(data: bytes, *at: int) -> list[Segment]:
        edges = [0, *at, len(data)]
        segments: list[Segment] = []
        for start, end in itertools.pairwise(edges):
            segments += [data[start:end], 0.15]
        return segments[:-1]

    yield split("method", "PO, a pause, ST", lambda s: cut(s.request(), 2))
    yield split("first-byte", "P, a pause, the rest", lambda s: cut(s.request(), 1))
    yield split("no-blank", "POST, a pause, the rest", lambda s: cut(s.request(), 4))
    yield split("in-target", "A pause in the target", lambda s: cut(s.request(), 9))
    yield split(
        "head",
        "A pause between head and body",
        lambda s: cut(s.request(), s.request().index(b"\r\n\r\n") + 4),
    )
    yield split("body", "A pause in the body", lambda s: cut(s.request(), len(s.request()) - 20))
    yield split("bytes", "One byte per segment", lambda s: [s.request()[i : i + 1] for i in range(len(s.request()))])


CASES: tuple[Case, ...] = (*_framings(), *_lengths(), *_lines(), *_segments())
