"""Compares the lane's own readers with mitmproxy's: whatever the lane takes, the layers read the same.

In one process and without sockets, so that a million cases take minutes. Each function returns how many cases the
lane took: the others are none of its business, so a run in which it took none says nothing.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

from h11 import Data, EndOfMessage, ProtocolError
from h11._readers import ChunkedReader
from h11._receivebuffer import ReceiveBuffer
from mitmproxy import http
from mitmproxy.net.http import http1
from mitmproxy.net.http.validate import validate_headers
from mitmproxy.test.tflow import tflow

from addons.flow_state import FlowState, context, forward_as_json, head, odd_framing, state_of
from addons.lane.chunks import ChunkReader
from addons.lane.heads import is_plain_request, read_response, request_key
from addons.lane.template import Lesson, lesson_of, with_forwarded
from proxy.core.model import Principal

FIELDS = (
    b"Host: a.example",
    b"Accept: application/json, text/event-stream",
    b"Content-Type: application/json",
    b"Content-Length: 12",
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    b"Tracestate: a=1, b=2",
    b"baggage: k=v",
    b"Mcp-Session-Id: 6f1c",
    b"mcp-protocol-version: 2025-06-18",
    b"Mcp-Method: tools/call",
    b"X-Request-ID: 7",
    b"User-Agent: client/1.0",
    b"Authorization: Bearer abc",
)
ANSWER = (
    b"Content-Type: application/json",
    b"Content-Length: 12",
    b"Transfer-Encoding: chunked",
    b"Date: Wed, 18 Nov 2026 10:00:00 GMT",
    b"Mcp-Session-Id: 6f1c",
    b"Content-Type: text/event-stream; charset=utf-8",
    b"Connection: keep-alive",
)
ODD = (b"\r", b"\n", b"\r\n", b"\0", b" ", b"  ", b"\t", b":", b",", b"\x80", b"\xc3\xa9", b"\r\n ", b"\r\nX: 1", b"")
ODD_LINES = (
    b"Transfer-Encoding: chunked",
    b"Content-Length: 5",
    b"content-length:5",
    b"Connection: close",
    b"Content-Encoding: gzip",
    b"Expect: 100-continue",
    b"mcp-session-id: other",
    b"Trailer: x",
)


def compare_requests(count: int, seed: int) -> int:
    """Change heads at random; raise AssertionError where the lane takes one that the layers read otherwise."""
    source, taken = random.Random(seed), 0
    for number in range(count):
        if number % 500 == 0:
            known = _some(source, FIELDS, (0, 2, 3))
            raw = _request(known)
            lesson = learn(raw)
            assert lesson is not None, raw
        changed = _request(_with_values(source, known) if source.random() < 0.7 else known)
        if source.random() < 0.6:
            changed = _mangled(source, changed)
        key = request_key(changed) if changed.endswith(b"\r\n\r\n") and changed.find(b"\r\n\r\n") > 0 else None
        if key is None or key.fixed != lesson.key.fixed or changed.find(b"\r\n\r\n") != len(changed) - 4:
            continue
        taken += 1
        assert is_plain_request(changed), changed
        _assert_same(changed, lesson)
    return taken


def learn(raw: bytes) -> Lesson | None:
    """Return what a lane learns of a head."""
    flow = _flow(raw)
    lesson = lesson_of(flow, state_of(flow), context(flow), head(flow.request))
    forward_as_json(flow.request, b"{}", {})
    return with_forwarded(lesson, flow.request) if lesson is not None else None


def _assert_same(raw: bytes, lesson: Lesson) -> None:
    key = request_key(raw)
    assert key is not None
    flow = _flow(raw)
    request = flow.request
    assert odd_framing(request) is None, raw
    assert http1.expected_http_body_size(request) == key.length, raw
    judged = lesson.with_values(key.values)
    assert judged.context == context(flow), raw
    read = head(request)
    assert list(judged.head.mcp) == list(read.mcp), raw
    assert (list(judged.head.content_types), list(judged.head.encodings)) == (list(read.content_types), []), raw
    assert _without_length(judged.head.whole()) == _without_length(read.whole()), raw
    forward_as_json(request, b"{}", {})
    assert lesson.forwarded.fill(key.values, 2) == http1.assemble_request_head(request), raw


def _without_length(fields: object) -> list[tuple[str, str]]:
    return [(name, value) for name, value in fields if name.lower() != "content-length"]  # type: ignore[attr-defined]


def _flow(raw: bytes) -> http.HTTPFlow:
    flow = tflow()
    flow.request = http1.read_request_head(raw[:-4].split(b"\r\n"))
    validate_headers(flow.request)
    flow.request.host, flow.request.port, flow.request.scheme = "a.example", 443, "https"
    flow.request.data.authority = b""
    flow.metadata["interlock"] = FlowState(principal=Principal("agent"), raw_head=raw)
    return flow


def compare_responses(count: int, seed: int) -> int:
    """Change heads of responses at random; raise AssertionError where the lane takes one and the layers do not."""
    source, taken = random.Random(seed), 0
    request = _flow(_request(FIELDS)).request
    for _ in range(count):
        raw = b"HTTP/1.1 200 OK\r\n" + b"".join(line + b"\r\n" for line in _some(source, ANSWER, (0,))) + b"\r\n"
        raw = _mangled(source, raw) if source.random() < 0.8 else raw
        found = read_response(raw)
        if found is None or found.size != len(raw):
            continue
        taken += 1
        response = http1.read_response_head(raw[:-4].split(b"\r\n"))
        validate_headers(response)
        assert response.status_code == 200, raw
        assert http1.expected_http_body_size(request, response) == found.length, raw
        assert response.headers["content-type"].partition(";")[0].lower().encode() == found.media_type, raw
        assert not {"content-encoding", "trailer", "upgrade"} & {name.lower() for name in response.headers}, raw
        assert not http1.connection_close(response.http_version, response.headers), raw
    return taken


def compare_chunks(count: int, seed: int) -> int:
    """Read chunked bodies, changed and cut at random; raise AssertionError where mitmproxy reads another body."""
    source, taken = random.Random(seed), 0
    for _ in range(count):
        parts = [bytes([source.choice(b"ab\r\n;0")]) * source.choice((1, 2, 15, 17, 300)) for _ in range(3)]
        raw = b"".join(b"%x%s\r\n%s\r\n" % (len(part), source.choice((b"", b";a=b")), part) for part in parts)
        raw += b"0\r\n" + source.choice((b"", b"X-T: 1\r\n")) + b"\r\n" + source.choice((b"", b"more"))
        raw = _mangled(source, raw) if source.random() < 0.6 else raw
        reader, body, pieces = ChunkReader(), b"", iter(_cut(source, raw))
        for piece in pieces:
            body += reader.feed(piece)
            if reader.ended:
                break
        if not reader.ended:
            continue
        taken += 1
        theirs, surplus = _read_chunks(raw)
        assert (body, reader.surplus + b"".join(pieces)) == (theirs, surplus), raw
    return taken


def _read_chunks(raw: bytes) -> tuple[bytes | None, bytes]:
    """Return what mitmproxy's reader makes of a body; None where it never ends or is refused."""
    buffer, reader, body = ReceiveBuffer(), ChunkedReader(), b""
    buffer += raw
    with contextlib.suppress(ProtocolError):
        while (event := reader(buffer)) is not None:
            if isinstance(event, EndOfMessage):
                return body, bytes(buffer)
            assert isinstance(event, Data)
            body += bytes(event.data)
    return None, b""


def _request(lines: tuple[bytes, ...]) -> bytes:
    return b"POST /mcp HTTP/1.1\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def _some(source: random.Random, lines: tuple[bytes, ...], always: tuple[int, ...]) -> tuple[bytes, ...]:
    """Return some of the lines in some order, those `always` among them."""
    kept = [line for number, line in enumerate(lines) if number in always or source.random() < 0.5]
    source.shuffle(kept)
    return tuple(kept)


def _with_values(source: random.Random, lines: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return lines, some with another value."""
    out = []
    for line in lines:
        name, _, value = line.partition(b": ")
        if source.random() < 0.4:
            letters = source.choices(b"abz019-=,;:/ \"'%", k=source.choice((1, 3, 40)))
            value = source.choice((bytes(letters), b"%d" % source.randrange(1 << 20), value + source.choice(ODD)))
        out.append(b"%s: %s" % (name, value))
    return tuple(out)


def _mangled(source: random.Random, raw: bytes) -> bytes:
    """Return bytes with one small change."""
    at = source.randrange(len(raw))
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: raw[:at] + source.choice(ODD) + raw[at:],
        lambda: raw[:at] + bytes([source.randrange(256)]) + raw[at + 1 :],
        lambda: raw[:at] + raw[at + 1 :],
        lambda: raw.replace(b"\r\n", b"\r\n" + source.choice(ODD_LINES) + b"\r\n", 1),
        lambda: raw[:at] + raw[at : at + 1].swapcase() + raw[at + 1 :],
    )
    return source.choice(changes)()


def _cut(source: random.Random, raw: bytes) -> list[bytes]:
    places = sorted(source.randrange(len(raw) + 1) for _ in range(source.choice((0, 1, 3, 8))))
    return [raw[start:end] for start, end in zip([0, *places], [*places, len(raw)], strict=True)]
