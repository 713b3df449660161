"""Cases that play with HTTP: codings, types, methods, paths, headers, framing, segments."""

from __future__ import annotations

import base64
import gzip
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence

import brotli  # type: ignore[import-untyped]
import zstandard

from tests.bypass.shot import MODERN, Case, Shot
from tests.raw import Segment

type Encode = Callable[[bytes], bytes]
CRLF = b"\r\n"


def _deflate_raw(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def _same(data: bytes) -> bytes:
    return data


def _gzip_twice(data: bytes) -> bytes:
    return gzip.compress(gzip.compress(data))


def _gzip_members(data: bytes) -> bytes:
    return gzip.compress(b" ") + gzip.compress(data)


def _coded(name: str, value: str, encode: Encode, **rest: object) -> Case:
    return Case(
        f"coding-{name}",
        f"Content-Encoding: {value or '(empty)'} over {encode.__name__.strip('_')} bytes",
        build=lambda shot: shot.request(encode(shot.text().encode()), headers=[("Content-Encoding", value)]),
        **rest,  # type: ignore[arg-type]
    )


def _codings() -> Iterator[Case]:
    yield _coded("gzip", "gzip", gzip.compress)
    yield _coded("x-gzip", "x-gzip", gzip.compress)
    yield _coded("gzip-upper", "GZIP", gzip.compress)
    yield _coded("deflate", "deflate", zlib.compress)
    yield _coded("deflate-raw", "deflate", _deflate_raw)
    yield _coded("br", "br", brotli.compress)
    yield _coded("zstd", "zstd", zstandard.compress)
    yield _coded("gzip-lie", "gzip", _same)
    yield _coded("deflate-lie", "deflate", _same)
    yield _coded("br-lie", "br", _same)
    yield _coded("unknown", "foo", _same)
    yield _coded("utf8", "utf-8", _same)
    yield _coded("empty", "", _same)
    yield _coded("identity", "identity", _same, benign="runs", answer="denial")
    yield _coded("identity-gzip", "identity, gzip", gzip.compress)
    yield _coded("stacked", "gzip, gzip", _gzip_twice)
    yield _coded("stacked-once", "gzip, gzip", gzip.compress)
    yield _coded("mixed", "br, gzip", lambda data: gzip.compress(brotli.compress(data)))
    yield _coded("silent-second", "gzip", _gzip_twice)
    yield _coded("members", "gzip", _gzip_members)
    yield _coded("gzip-tail", "gzip", lambda data: gzip.compress(data) + b"tail")
    yield Case(
        "coding-two-lines",
        "Content-Encoding twice",
        build=lambda shot: shot.request(
            _gzip_twice(shot.text().encode()),
            headers=[("Content-Encoding", "gzip"), ("Content-Encoding", "gzip")],
        ),
    )
    yield Case(
        "coding-unsaid",
        "gzip without a word",
        build=lambda shot: shot.request(gzip.compress(shot.text().encode())),
    )
    yield Case(
        "coding-bomb",
        "64 MB of blanks and the call in 64 kB of gzip",
        build=lambda shot: shot.request(_bomb(shot), headers=[("Content-Encoding", "gzip")]),
        toothless="the lenient server stops after 4 MB too",
        limit=15.0,
    )
    yield Case(
        "transfer-gzip",
        "Transfer-Encoding: gzip, chunked",
        build=lambda shot: _chunked(
            shot, gzip.compress(shot.text().encode()), header="Transfer-Encoding: gzip, chunked"
        ),
    )


def _bomb(shot: Shot) -> bytes:
    compressor = zlib.compressobj(wbits=31)
    blanks = b" " * 1_000_000
    return (
        b"".join(compressor.compress(blanks) for _ in range(64))
        + compressor.compress(shot.text().encode())
        + compressor.flush()
    )


def _types() -> Iterator[Case]:
    for name, value in {
        "text": "text/plain", "json-rpc": "application/json-rpc", "list": "application/json,text/plain",
        "list-reversed": "text/plain, application/json", "form": "application/x-www-form-urlencoded",
        "multipart": "multipart/form-data; boundary=x", "octets": "application/octet-stream",
        "sse": "text/event-stream", "ndjson": "application/x-ndjson", "suffix": "application/vnd.x+json",
        "empty": "", "junk": ";;;", "image": "image/png", "grpc": "application/grpc-web+json",
    }.items():  # fmt: skip
        yield Case(
            f"type-{name}",
            f"Content-Type: {value or '(empty)'}",
            build=lambda shot, v=value: shot.retyped(v),  # type: ignore[misc]
        )
    yield Case(
        "type-upper",
        "Content-Type: APPLICATION/JSON",
        build=lambda shot: shot.retyped("APPLICATION/JSON"),
        answer="denial",
    )
    yield Case(
        "type-missing",
        "No Content-Type",
        build=lambda shot: shot.request(without=["Content-Type"]),
    )
    yield Case(
        "type-twice",
        "Content-Type: application/json, then text/plain",
        build=lambda shot: shot.request(headers=[("Content-Type", "text/plain")]),
    )
    yield Case(
        "type-twice-reversed",
        "Content-Type: text/plain, then application/json",
        build=lambda shot: shot.request(
            without=["Content-Type"],
            headers=[("Content-Type", "text/plain"), ("Content-Type", "application/json")],
        ),
    )
    yield Case(
        "form-field",
        "The message in a form field named like nothing",
        build=lambda shot: shot.retyped("application/x-www-form-urlencoded", shot.text() + "="),
    )


def _targets() -> Iterator[Case]:
    for method in (
        "GET",
        "PUT",
        "DELETE",
        "PATCH",
        "OPTIONS",
        "HEAD",
        "QUERY",
        "FOO",
        "post",
        "Post",
        "TRACE",
    ):
        yield Case(
            f"verb-{method}{'-lower' if method != method.upper() else ''}",
            f"The call in the body of a {method}",
            build=lambda shot, m=method: shot.request(  # type: ignore[misc]
                method=m,
                # A DELETE with the session's id would end the session that other cases use.
                without=["Mcp-Session-Id"] if m == "DELETE" else [],
            ),
            limit=1.5,
        )
    yield Case(
        "verb-override",
        "X-HTTP-Method-Override: GET on the call",
        build=lambda shot: shot.request(headers=[("X-HTTP-Method-Override", "GET")]),
        benign="runs",
        answer="denial",
    )
    for name, path in {
        "escaped": "/%6dcp", "escaped-slash": "/x%2f..%2fmcp", "upper": "/MCP", "slash": "/mcp/", "double": "//mcp",
        "dot": "/./mcp", "dotdot": "/x/../mcp", "semicolon": "/mcp;x=1", "nul": "/mcp%00", "other": "/api/v1/anything",
        "image": "/logo.png", "fragment": "/mcp#x", "backslash": "/x\\..\\mcp",
    }.items():  # fmt: skip
        yield Case(
            f"path-{name}",
            f"The call at {path}",
            build=lambda shot, p=path: shot.request(path=p),  # type: ignore[misc]
        )
    yield Case(
        "path-query",
        "The endpoint with a query",
        build=lambda shot: shot.request(path=shot.aim.path + ("&" if "?" in shot.aim.path else "?") + "x=1"),
        benign="runs",
        answer="denial",
    )
    yield Case(
        "path-absolute",
        "An absolute-form target on every route",
        build=lambda shot: shot.request().replace(
            f"POST {shot.aim.target(shot.aim.path)} ".encode(),
            f"POST http{'s' if shot.aim.tls else ''}://{shot.aim.authority}{shot.aim.path} ".encode(),
            1,
        ),
    )


def _mcp_headers() -> Iterator[Case]:
    def lie(name: str, tries: str, headers: Sequence[tuple[str, str]], *, keep: bool = False) -> Case:
        dropped = () if keep else [key for key, _ in headers]
        return Case(f"mcp-{name}", tries, build=lambda shot: shot.request(without=dropped, headers=headers))

    encoded = f"=?base64?{base64.b64encode(b'echo').decode()}?="
    yield lie("method-lie", "Mcp-Method: ping over tools/call", [("Mcp-Method", "ping")])
    yield lie("name-lie", "Mcp-Name: echo over another tool", [("Mcp-Name", "echo")])
    yield lie("name-lie-base64", "Mcp-Name: echo in base64", [("Mcp-Name", encoded)])
    yield lie("name-empty", "An empty Mcp-Name", [("Mcp-Name", "")])
    yield lie("both-lie", "Method and name both lie", [("Mcp-Method", "tools/list"), ("Mcp-Name", "echo")])
    yield lie("name-twice", "A second Mcp-Name", [("Mcp-Name", "echo")], keep=True)
    yield lie("method-twice", "A second Mcp-Method", [("Mcp-Method", "ping")], keep=True)
    yield lie("version-twice", "A second protocol version", [("MCP-Protocol-Version", "2025-06-18")], keep=True)
    yield lie("version-odd", "A version nobody knows", [("MCP-Protocol-Version", "2099-01-01")])
    yield lie("version-old", "The first revision's version", [("MCP-Protocol-Version", "2024-11-05")])
    yield lie("version-modern", "The modern version on any body", [("MCP-Protocol-Version", MODERN)])
    yield lie("param", "An Mcp-Param header that says otherwise", [("Mcp-Param-Note", "harmless")])
    yield lie("session-odd", "A second session id", [("Mcp-Session-Id", "x")], keep=True)
    yield Case(
        "mcp-name-base64",
        "Mcp-Name in base64, truthfully",
        build=lambda shot: shot.request(
            without=["Mcp-Name"],
            headers=[("Mcp-Name", f"=?base64?{base64.b64encode(shot.tool.encode()).decode()}?=")],
        ),
        answer="denial",
    )


def _hosts() -> Iterator[Case]:
    def host(name: str, tries: str, headers: Sequence[tuple[str, str]]) -> Case:
        return Case(
            f"host-{name}",
            tries,
            build=lambda shot: shot.request(without=["Host"], headers=headers),
            limit=2.0,
        )

    yield host("other", "Host: another name than the target's", [("Host", "other.example")])
    yield host("missing", "No Host", [])
    yield host("twice", "Two Hosts", [("Host", "127.0.0.1"), ("Host", "other.example")])
    yield host("userinfo", "Host with userinfo", [("Host", "x@127.0.0.1")])
    yield Case(
        "host-forwarded",
        "X-Forwarded-Host and Forwarded say otherwise",
        build=lambda shot: shot.request(
            headers=[("X-Forwarded-Host", "other.example"), ("Forwarded", "host=other.example")]
        ),
        benign="runs",
        answer="denial",
    )
    yield Case(
        "proxy-auth-junk",
        "Proxy-Authorization that cannot be read",
        build=lambda shot: shot.request(headers=[("Proxy-Authorization", "Basic !!!")]),
    )
    yield Case(
        "proxy-auth-twice",
        "Two Proxy-Authorizations",
        build=lambda shot: shot.request(
            headers=[("Proxy-Authorization", "Basic YTpi"), ("Proxy-Authorization", "Bearer x")]
        ),
    )
    yield Case(
        "proxy-auth-unknown",
        "A name and a token that nobody gave out",
        build=lambda shot: shot.request(
            headers=[("Proxy-Authorization", "Basic " + base64.b64encode(b"admin:admin").decode())]
        ),
    )


def _chunked(
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
    def chunked(name: str, tries: str, build: Callable[[Shot], bytes], **rest: object) -> Case:
        return Case(f"chunked-{name}", tries, build=build, limit=1.5, **rest)  # type: ignore[arg-type]

    yield chunked("plain", "Chunks of 40 bytes", _chunked, benign="runs", answer="denial")
    yield chunked("bytes", "Chunks of one byte", lambda s: _chunked(s, size=1), benign="runs", answer="denial")
    yield chunked("extension", "Chunk extensions", lambda s: _chunked(s, extension=b';a="b"'), benign="runs")
    yield chunked("trailer", "A trailer", lambda s: _chunked(s, trailer=b"X-Trailer: 1\r\n"))
    yield chunked("trailer-length", "A Content-Length trailer", lambda s: _chunked(s, trailer=b"Content-Length: 5\r\n"))
    yield chunked("lf", "Chunks that end in bare LF", lambda s: _chunked(s, newline=b"\n"))
    yield chunked("zeros", "Chunk sizes with leading zeros", lambda s: _chunked(s, prefix=b"000"))
    yield chunked("hex-prefix", "Chunk sizes with 0x", lambda s: _chunked(s, prefix=b"0x"), toothless="reads as 0")
    for name, value in {
        "upper": "CHUNKED", "identity": "identity, chunked", "identity-after": "chunked, identity", "junk": "xchunked",
        "tab": "\tchunked", "vertical-tab": "\x0bchunked", "quoted": '"chunked"', "twice": "chunked, chunked",
    }.items():  # fmt: skip
        yield chunked(
            f"te-{name}",
            f"Transfer-Encoding: {value!r}",
            lambda s, v=value: _chunked(s, header=f"Transfer-Encoding: {v}"),  # type: ignore[misc]
        )
    yield chunked(
        "te-two-lines",
        "Transfer-Encoding twice",
        lambda s: _chunked(s, header="Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"),
    )
    yield chunked("te-blank", "A blank before the colon", lambda s: _chunked(s, header="Transfer-Encoding : chunked"))
    yield chunked(
        "te-cl", "Transfer-Encoding and Content-Length",
        lambda s: _chunked(s, header="Content-Length: 5\r\nTransfer-Encoding: chunked"),
    )  # fmt: skip
    yield chunked(
        "cl-te", "Content-Length after Transfer-Encoding",
        lambda s: _chunked(s, header="Transfer-Encoding: chunked\r\nContent-Length: 5"),
    )  # fmt: skip


def _lengths() -> Iterator[Case]:
    def length(name: str, tries: str, header: Callable[[int], str]) -> Case:
        def build(shot: Shot) -> bytes:
            body = shot.text().encode()
            return (shot.head().removesuffix("\r\n") + header(len(body)) + "\r\n\r\n").encode("latin-1") + body

        return Case(f"length-{name}", tries, build=build, limit=1.5)

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
    def line(name: str, tries: str, build: Callable[[Shot], bytes | Sequence[Segment]], **rest: object) -> Case:
        return Case(f"line-{name}", tries, build=build, limit=2.0, **rest)  # type: ignore[arg-type]

    yield line("lf", "Bare LF everywhere", lambda s: s.request().replace(CRLF, b"\n"))
    yield line("crlf-first", "CRLF before the request", lambda s: CRLF + s.request())
    yield line("crlf-many", "Many CRLFs before the request", lambda s: CRLF * 50 + s.request())
    yield line("lf-first", "LF before the request", lambda s: b"\n" + s.request())
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


CASES: tuple[Case, ...] = (
    *_codings(),
    *_types(),
    *_targets(),
    *_mcp_headers(),
    *_hosts(),
    *_framings(),
    *_lengths(),
    *_lines(),
    *_segments(),
)
