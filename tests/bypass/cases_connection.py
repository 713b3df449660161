"""Cases that play with the connection: pipelines, smuggling, tunnels, TLS, upgrades, HTTP/2, WebSocket."""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from tests.bypass.cases_framing import WAITS, chunked
from tests.bypass.shot import Case, Route, Shot
from tests.support.raw_socket import Segment, Tls, send_raw

TUNNELS: frozenset[Route] = frozenset({"regular"})
"""Cases that open tunnels of their own need the port where CONNECT is spoken."""
PLAIN: frozenset[Route] = frozenset({"regular", "reverse"})
SECURE: frozenset[Route] = frozenset({"connect", "reversetls"})


def _harmless(shot: Shot) -> bytes:
    return shot.request(shot.ping(), without=["Mcp-Name", "Mcp-Method"], headers=_ping_headers(shot))


def _ping_headers(shot: Shot) -> list[tuple[str, str]]:
    return [("Mcp-Method", "ping")] if shot.aim.modern else []


def _pipelines() -> Iterator[Case]:
    yield Case(
        "pipeline-second",
        "A harmless request and the call in one segment",
        build=lambda s: _harmless(s) + s.request(),
        answers=2,
        benign="runs",
    )
    yield Case(
        "pipeline-first",
        "The call, then a harmless request in the same segment",
        build=lambda s: s.request() + _harmless(s),
        answers=2,
        benign="runs",
    )
    yield Case(
        "pipeline-tenth",
        "Nine harmless requests, then the call",
        build=lambda s: _harmless(s) * 9 + s.request(),
        answers=10,
        limit=30.0,
        benign="runs",
    )
    yield Case(
        "pipeline-after-get",
        "A GET with a length, the call as its body",
        build=lambda s: s.request(s.request(), method="GET", path="/health"),
        limit=8.0,
    )
    yield Case(
        "smuggle-cl0",
        "Content-Length: 0 and the call as what follows",
        build=lambda s: (s.head() + "").removesuffix("\r\n").encode() + b"Content-Length: 0\r\n\r\n" + s.request(),
        answers=2,
        limit=8.0,
    )
    yield Case(
        "smuggle-te-cl",
        "A short Content-Length beside chunks that hide a second request",
        build=_smuggled_te_cl,
        answers=2,
        limit=8.0,
    )
    yield Case(
        "smuggle-cl-te",
        "An empty chunked body beside a long Content-Length",
        build=_smuggled_cl_te,
        answers=2,
        limit=8.0,
    )
    yield Case(
        "expect-continue",
        "Expect: 100-continue, body after a pause",
        build=_expecting,
        limit=8.0,
        benign="runs",
    )
    yield Case(
        "expect-unknown",
        "Expect: something else",
        build=lambda s: s.request(headers=[("Expect", "x")]),
    )


def _smuggled_te_cl(shot: Shot) -> bytes:
    inner = shot.request()
    chunk = b"%x\r\n" % len(inner) + inner + b"\r\n0\r\n\r\n"
    head = shot.head().removesuffix("\r\n") + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + chunk


def _smuggled_cl_te(shot: Shot) -> bytes:
    inner = b"0\r\n\r\n" + shot.request()
    head = shot.head().removesuffix("\r\n")
    head += f"Content-Length: {len(inner)}\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head.encode() + inner


def _expecting(shot: Shot) -> Sequence[Segment]:
    request = shot.request(headers=[("Expect", "100-continue")])
    body = request.index(b"\r\n\r\n") + 4
    return [request[:body], 0.15, request[body:]]


def _hidden_requests() -> Iterator[Case]:
    """The call as a whole request inside a body, for a server that leaves the body unread."""

    def hidden(name: str, tries: str, build: Callable[[Shot], bytes]) -> Case:
        return Case(f"hidden-{name}", tries, build=build, limit=8.0)

    def inner(shot: Shot) -> bytes:
        return _origin_form(shot.request(), shot)

    def packed(shot: Shot) -> bytes:
        return _origin_form(shot.request(gzip.compress(shot.text().encode())), shot)

    def outer(shot: Shot, body: bytes, method: str = "POST") -> bytes:
        headers = [("Content-Type", "text/plain")]
        return shot.request(body, method=method, path="/nothing", without=["Content-Type"], headers=headers)

    yield hidden("post", "A request as the body of a POST", lambda s: outer(s, inner(s)))
    yield hidden("put", "A request as the body of a PUT", lambda s: outer(s, inner(s), "PUT"))
    yield hidden("chunked", "A request in chunks", lambda s: chunked(s, inner(s), size=30))
    yield hidden("later", "A request after what the server reads", lambda s: outer(s, b"x" * 700 + inner(s)))
    yield hidden(
        "second", "A harmless request, then the call", lambda s: outer(s, b"GET / HTTP/1.1\r\n\r\n" + inner(s))
    )
    yield hidden("lf", "A request in bare line feeds", lambda s: outer(s, inner(s).replace(b"\r\n", b"\n")))
    yield hidden("tabs", "Tabs in its request line", lambda s: outer(s, inner(s).replace(b" ", b"\t", 2)))
    yield hidden("crlf", "Empty lines before it", lambda s: outer(s, b"\r\n\r\n" + inner(s)))
    yield hidden(
        "gzip", "Its own body in gzip", lambda s: outer(s, _origin_form(s.request(gzip.compress(s.text().encode())), s))
    )
    yield Case("hidden-h2", "A request as a body over HTTP/2", talk=lambda s: _http2(s, [inner(s)]), routes=SECURE)


def _origin_form(request: bytes, shot: Shot) -> bytes:
    return request.replace(f"http://{shot.aim.authority}".encode(), b"", 1)


def _through_tunnel(shot: Shot, segments: Sequence[Segment], *, tls: Tls | None = None) -> bytes:
    return send_raw("127.0.0.1", shot.aim.port, segments, connect=shot.aim.authority, tls=tls, limit=8.0)


def _tunnels() -> Iterator[Case]:
    def tunnel(name: str, tries: str, segments: Callable[[Shot], Sequence[Segment]], **rest: Any) -> Case:
        return Case(
            f"tunnel-{name}",
            tries,
            talk=lambda s: _through_tunnel(s, segments(s)),
            routes=TUNNELS,
            **rest,
        )

    yield tunnel("plain", "HTTP without TLS in a tunnel", lambda s: [_origin_form(s.request(), s)], benign="runs")
    yield tunnel("absolute", "Absolute form in a tunnel", lambda s: [s.request()])
    yield tunnel(
        "split", "PO, a pause, ST in a tunnel",
        lambda s: [b"PO", 0.2, _origin_form(s.request(), s)[2:]], benign="runs",
    )  # fmt: skip
    yield tunnel("crlf", "CRLF before the request in a tunnel", lambda s: [b"\r\n", 0.1, _origin_form(s.request(), s)])
    yield tunnel("blank-byte", "One blank in a tunnel, then the request", lambda s: [b" ", 0.1, s.request()])
    yield tunnel(
        "in-tunnel",
        "CONNECT inside CONNECT",
        lambda s: [f"CONNECT {s.aim.authority} HTTP/1.1\r\n\r\n".encode(), 0.2, _origin_form(s.request(), s)],
    )
    yield tunnel("raw-json", "A JSON line without HTTP in a tunnel", lambda s: [s.text().encode() + b"\n"])
    yield tunnel("raw-later", "Non-HTTP bytes, then the request", lambda s: [b"\x00\x01\x02", 0.2, s.request()])
    yield tunnel(
        "fake-tls", "A byte that looks like TLS, then HTTP",
        lambda s: [b"\x16\x03\x01", 0.2, _origin_form(s.request(), s)],
        hangs=WAITS,
    )  # fmt: skip
    yield Case(
        "tunnel-early",
        "The request in the same segment as CONNECT",
        talk=lambda s: send_raw(
            "127.0.0.1",
            s.aim.port,
            [f"CONNECT {s.aim.authority} HTTP/1.1\r\n\r\n".encode() + _origin_form(s.request(), s)],
            answers=2,
            limit=1.5,
        ),
        routes=TUNNELS,
    )
    yield Case(
        "tunnel-body",
        "CONNECT with the call as its body",
        talk=lambda s: send_raw(
            "127.0.0.1",
            s.aim.port,
            [
                _origin_form(s.request(), s).replace(
                    b"POST " + s.aim.path.encode(), f"CONNECT {s.aim.authority}".encode()
                )
            ],
            answers=2,
            limit=1.5,
        ),
        routes=TUNNELS,
    )


def _sni(name: str, server_name: str | None, **rest: Any) -> Case:
    def talk(shot: Shot) -> bytes:
        tls = Tls(shot.aim.ca_file, server_name=server_name)
        connect = shot.aim.authority if shot.aim.route == "connect" else None
        return send_raw("127.0.0.1", shot.aim.port, [shot.request()], connect=connect, tls=tls, limit=8.0)

    return Case(
        f"sni-{name}",
        f"TLS with the name {server_name!r}",
        talk=talk,
        routes=SECURE,
        **rest,
    )


def _tls() -> Iterator[Case]:
    yield _sni("none", None)
    yield _sni("localhost", "localhost", benign="runs")
    yield _sni("other", "other.example")
    yield _sni("punycode", "xn--e1afmkfd.example")
    yield Case(
        "h2",
        "HTTP/2 by ALPN",
        talk=lambda s: _http2(s, [s.text().encode()]),
        routes=SECURE,
        benign="runs",
    )
    yield Case(
        "h2-frames",
        "HTTP/2 with the body in one-byte frames",
        talk=lambda s: _http2(s, [bytes([byte]) for byte in s.text().encode()]),
        routes=SECURE,
        benign="runs",
    )
    yield Case(
        "h2-length-lie",
        "HTTP/2 with a wrong content-length",
        talk=lambda s: _http2(s, [s.text().encode()], extra=[("content-length", "3")]),
        routes=SECURE,
        toothless="HTTP/2 servers check the length themselves",
    )
    yield Case(
        "h2-te",
        "HTTP/2 with transfer-encoding: chunked",
        talk=lambda s: _http2(s, [s.text().encode()], extra=[("transfer-encoding", "chunked")]),
        routes=SECURE,
    )
    yield Case(
        "h2-newline",
        "HTTP/2 with a line break in a header",
        talk=lambda s: _http2(s, [s.text().encode()], extra=[("x-a", "1\r\nMcp-Name: echo")]),
        routes=SECURE,
    )
    yield Case(
        "h2-prior",
        "HTTP/2 without TLS, by prior knowledge",
        talk=lambda s: _http2(s, [s.text().encode()]),
        routes=PLAIN,
        limit=8.0,
    )


@contextlib.contextmanager
def _http2_socket(shot: Shot) -> Iterator[socket.socket]:
    with contextlib.closing(socket.create_connection(("127.0.0.1", shot.aim.port), timeout=15)) as sock:
        if not shot.aim.tls:
            yield sock
            return
        if shot.aim.route == "connect":
            sock.sendall(f"CONNECT {shot.aim.authority} HTTP/1.1\r\nHost: {shot.aim.authority}\r\n\r\n".encode())
            while not sock.recv(4096).endswith(b"\r\n\r\n"):
                pass
        with Tls(shot.aim.ca_file, alpn=("h2",)).wrap(sock) as secure:
            yield secure


def _http2(shot: Shot, frames: Sequence[bytes], extra: Sequence[tuple[str, str]] = ()) -> bytes:
    """Send the call as one HTTP/2 stream and give what its answer carried."""
    config = h2.config.H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False)
    peer = h2.connection.H2Connection(config)
    peer.initiate_connection()
    defaults = [(name.lower(), value) for name, value in shot.default_headers() if name != "Host"]
    pseudo = [
        (":method", "POST"),
        (":scheme", "https" if shot.aim.tls else "http"),
        (":authority", shot.aim.authority),
        (":path", shot.aim.path),
    ]
    peer.send_headers(1, [*pseudo, *defaults, *extra])
    for frame in frames:
        peer.send_data(1, frame)
    peer.end_stream(1)
    with contextlib.suppress(OSError, ssl.SSLError, h2.exceptions.H2Error), _http2_socket(shot) as sock:
        sock.sendall(peer.data_to_send())
        return _http2_answer(peer, sock)
    return b""


def _http2_answer(peer: h2.connection.H2Connection, sock: socket.socket) -> bytes:
    answer = b""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and (data := sock.recv(65536)):
        for event in peer.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                answer += event.data or b""
            elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset | h2.events.ConnectionTerminated):
                return answer
        sock.sendall(peer.data_to_send())
    return answer


def _upgraded(shot: Shot, protocol: str, after: Sequence[Segment], extra: str = "") -> Sequence[Segment]:
    line = f"GET {shot.aim.target(shot.aim.path)} HTTP/1.1\r\nHost: {shot.aim.authority}\r\n"
    head = f"{line}Connection: Upgrade\r\nUpgrade: {protocol}\r\n{extra}\r\n"
    return [head.encode(), 0.25, *after]


def _frame(data: bytes, *, opcode: int = 1, final: bool = True, compressed: bool = False) -> bytes:
    """Write a masked WebSocket frame."""
    mask = os.urandom(4)
    first = opcode | (0x80 if final else 0) | (0x40 if compressed else 0)
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack(">H", len(data))
    return bytes([first]) + size + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))


def _websocket(name: str, tries: str, frames: Callable[[bytes], list[Segment]], **rest: Any) -> Case:
    key = base64.b64encode(b"0123456789abcdef").decode()
    extra = f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
    if name == "deflate":
        extra += "Sec-WebSocket-Extensions: permessage-deflate\r\n"
    return Case(
        f"websocket-{name}",
        tries,
        build=lambda s: _upgraded(s, "websocket", frames(s.text().encode()), extra),
        answers=2,
        limit=6.0,
        **rest,
    )


def _websocket_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return (compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\x00\x00\xff\xff")


def _upgrades() -> Iterator[Case]:
    yield Case(
        "upgrade-foo",
        "Upgrade: foo, then a request as raw bytes",
        build=lambda s: _upgraded(s, "foo", [_origin_form(s.request(), s)]),
        answers=2,
        limit=8.0,
    )
    yield Case(
        "upgrade-foo-json",
        "Upgrade: foo, then a JSON line",
        build=lambda s: _upgraded(s, "foo", [s.text().encode() + b"\n"]),
        answers=2,
        limit=6.0,
    )
    yield Case(
        "upgrade-h2c",
        "Upgrade: h2c, with the call as the request's body",
        build=lambda s: s.request(
            headers=[
                ("Connection", "Upgrade, HTTP2-Settings"),
                ("Upgrade", "h2c"),
                ("HTTP2-Settings", "AAMAAABk"),
            ]
        ),
        limit=8.0,
    )
    yield _websocket("text", "The call as a WebSocket text", lambda data: [_frame(data)])
    yield _websocket("binary", "The call as a binary message", lambda data: [_frame(data, opcode=2)])
    yield _websocket(
        "fragments",
        "The call in two fragments",
        lambda data: [_frame(data[:30], final=False), 0.05, _frame(data[30:], opcode=0)],
    )
    for name, cut in {"halves": 60, "words": 9, "bytes": 3}.items():
        yield _websocket(
            f"cut-{name}",
            f"The call cut over messages of {cut} bytes",
            lambda data, cut=cut: [_frame(data[at : at + cut]) for at in range(0, len(data), cut)],  # type: ignore[misc]
        )
    yield _websocket("batch", "A batch as a WebSocket text", lambda data: [_frame(b"[" + data + b"]")])
    yield _websocket("second", "A harmless message first", lambda data: [_frame(b'{"x":1}'), 0.1, _frame(data)])
    yield _websocket(
        "utf16",
        "The call in UTF-16 as binary",
        lambda data: [_frame(data.decode().encode("utf-16"), opcode=2)],
    )
    yield _websocket("deflate", "The call deflated", lambda data: [_frame(_websocket_deflate(data), compressed=True)])
    yield _websocket(
        "line",
        "The call on a line after garbage",
        lambda data: [_frame(b"hello\n" + data)],
    )
    yield _websocket(
        "ping-frame",
        "The call in a control frame",
        lambda data: [_frame(data[:125], opcode=9)],
        toothless="control frames carry no messages",
    )
    yield _websocket("reserved", "The call in a reserved opcode", lambda data: [_frame(data, opcode=3)])


CASES: tuple[Case, ...] = (*_pipelines(), *_hidden_requests(), *_tunnels(), *_tls(), *_upgrades())
