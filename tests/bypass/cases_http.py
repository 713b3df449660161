"""Cases that play with what HTTP says of the message: codings, types, methods, paths, headers."""

from __future__ import annotations

import base64
import functools
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import brotli
import zstandard

from tests.bypass.cases_framing import chunked
from tests.bypass.shot import MODERN, Case, Shot

type Encode = Callable[[bytes], bytes]


def _deflate_raw(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


def _same(data: bytes) -> bytes:
    return data


def _gzip_twice(data: bytes) -> bytes:
    return gzip.compress(gzip.compress(data))


def _gzip_members(data: bytes) -> bytes:
    return gzip.compress(b" ") + gzip.compress(data)


def _coded(name: str, value: str, encode: Encode, **rest: Any) -> Case:
    return Case(
        f"coding-{name}",
        f"Content-Encoding: {value or '(empty)'} over {encode.__name__.strip('_')} bytes",
        build=lambda shot: shot.request(encode(shot.text().encode()), headers=[("Content-Encoding", value)]),
        **rest,
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
    )
    yield Case(
        "transfer-gzip",
        "Transfer-Encoding: gzip, chunked",
        build=lambda shot: chunked(
            shot, gzip.compress(shot.text().encode()), header="Transfer-Encoding: gzip, chunked"
        ),
    )


@functools.cache
def _packed_blanks() -> tuple[bytes, Any]:
    """Return 64 MB of blanks, and the compressor that goes on from there."""
    compressor = zlib.compressobj(wbits=31)
    blanks = b" " * 1_000_000
    return b"".join(compressor.compress(blanks) for _ in range(64)), compressor


def _bomb(shot: Shot) -> bytes:
    packed, compressor = _packed_blanks()
    goes_on = compressor.copy()
    return packed + goes_on.compress(shot.text().encode()) + goes_on.flush()


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
            limit=8.0,
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
            limit=8.0,
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


CASES: tuple[Case, ...] = (*_codings(), *_types(), *_targets(), *_mcp_headers(), *_hosts())
