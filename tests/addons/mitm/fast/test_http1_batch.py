"""HTTP/1 with fewer steps comes to what mitmproxy comes to: which connections stay, what is received and sent."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy import http, options
from mitmproxy.connection import Client, ConnectionState, Server
from mitmproxy.net.http.http1 import read_request_head, read_response_head
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import (
    ReceiveHttp,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
)
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Server

from addons.mitm.fast.http1_batch import TOGETHER_BYTES, BatchingHttp1, EventBatch, together


class QuickServer(BatchingHttp1, Http1Server):
    _is_server = True


class QuickClient(BatchingHttp1, Http1Client):
    _is_server = False


FIELDS = st.lists(
    st.sampled_from(
        [
            "Connection: close",
            "Connection: keep-alive",
            "connection: Keep-Alive, close",
            "Content-Length: 0",
            "Content-Length: 5",
            "Content-Length:",
            "Content-Length: x",
            "Transfer-Encoding: chunked",
            "Transfer-Encoding: gzip",
            "X: y",
        ]
    ),
    max_size=3,
)
VERSIONS = st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0"])


def context() -> Context:
    made = Context(Client(peername=("c", 1), sockname=("p", 2), state=ConnectionState.OPEN), options.Options())
    made.server = Server(address=("s", 3))
    made.server.state = ConnectionState.OPEN
    return made


def said(layer: Http1Server | Http1Client, event: events.Event) -> list[object]:
    """What a layer does with an event, with what it sends as one piece."""
    done: list[object] = []
    try:
        for command in layer.handle_event(event):
            if isinstance(command, commands.SendData):
                done.append(command.data)
            elif isinstance(command, ReceiveHttp):
                parts = command.event.parts if isinstance(command.event, EventBatch) else [command.event]
                done += [(type(part), getattr(part, "data", b"")) for part in parts]
            else:
                done.append(type(command))
    except (AssertionError, NotImplementedError, ValueError) as error:
        done.append(type(error))
    return done


def pieces(did: list[object]) -> list[object]:
    """Bytes that follow each other, as one."""
    joined: list[object] = []
    for one in did:
        if isinstance(one, bytes) and joined and isinstance(joined[-1], bytes):
            joined[-1] += one
        else:
            joined.append(one)
    return joined


@given(
    st.sampled_from(["GET", "POST", "HEAD", "head", "CONNECT"]),
    st.sampled_from([200, 101, 204, 304, 404]),
    VERSIONS,
    VERSIONS,
    FIELDS,
    FIELDS,
)
def test_the_same_connections_stay(method, status, spoken, answered, asked, said_back):
    target = "s:3" if method == "CONNECT" else "/"
    ends = []
    for kind in (Http1Server, QuickServer, Http1Client, QuickClient):
        layer = kind(context())
        layer.state, layer.stream_id = layer.read_headers, 1
        layer.request = read_request_head([line.encode() for line in (f"{method} {target} {spoken}", *asked)])
        layer.response = read_response_head([line.encode() for line in (f"{answered} {status} OK", *said_back)])
        layer.request_done = True
        asked_for = [type(command) for command in layer.mark_done(response=True)]
        ends.append((asked_for, layer.state.__name__, layer.stream_id, layer.request is None, layer.request_done))
    assert ends[0] == ends[1]
    assert ends[2] == ends[3]


PLAIN_CHUNKS = ["5\r\nhello\r\n", "a\r\n0\r\n\r\n12345\r\n", "0B\r\nhello world\r\n"]
ODD_CHUNKS = ["5;a=b\r\nhello\r\n", "5 \r\nhello\r\n", "5\r\nhello", "5\nhello\n", "5\r\nhelloworld", "5\r\nhell\r\n"]
NO_CHUNKS = ["x\r\n", "123456789\r\n", "-1\r\n", "\r\n"]
CHUNKS = st.lists(st.sampled_from([*PLAIN_CHUNKS, *ODD_CHUNKS, *NO_CHUNKS]), max_size=4).map("".join)
LAST = st.sampled_from(
    [
        *("0\r\n\r\n", "000\r\n\r\n", "0\r\nTrailer: x\r\n\r\n", "0\r\n\r\nGET / ", "0\r\n", ""),
        *("0\r\n\r\n5\r\nhello\r\n", "0\r\n\r\n0\r\n\r\n", "0\r\n\r\n\r\n"),
    ]
)
BODIES = st.one_of(
    st.tuples(st.just("Transfer-Encoding: chunked"), st.tuples(CHUNKS, LAST).map("".join)),
    st.tuples(
        st.sampled_from(["Content-Length: 5", "Content-Length: 0", "X: y", "Content-Length: 5\r\nConnection: close"]),
        st.sampled_from(["hello", "hell", "helloGET / ", ""]),
    ),
)
REQUEST = http.Request.make("GET", "http://s/")
ASKED = (RequestHeaders(1, REQUEST, end_stream=True), RequestEndOfMessage(1))
UPLOAD = http.Request.make("POST", "http://s/", headers={"Content-Length": "9"})
STILL_ASKING = (RequestHeaders(1, UPLOAD, end_stream=False), RequestData(1, b"x"))


@given(st.lists(st.integers(1, 40), max_size=6), BODIES, st.sampled_from([ASKED, STILL_ASKING]))
def test_the_same_is_received_however_it_is_cut(cuts, body, asked):
    for kinds, first in (
        ((Http1Server, QuickServer), "POST / HTTP/1.1"),
        ((Http1Client, QuickClient), "HTTP/1.1 200 OK"),
    ):
        sent = "\r\n".join([first, body[0], "", body[1]]).encode()
        received = []
        for kind in kinds:
            layer, rest, got = kind(context()), sent, []
            for event in (events.Start(), *(asked if isinstance(layer, Http1Client) else ())):
                said(layer, event)
            for cut in (*cuts, len(sent)):
                piece, rest = rest[:cut], rest[cut:]
                got += said(layer, events.DataReceived(layer.conn, piece)) if piece else []
            received.append((_whole_bodies(got), layer.state.__name__, bytes(layer.buf)))
        assert received[0] == received[1]


@pytest.mark.parametrize("more", ["5\r\nhello\r\n", "0\r\n\r\n", "\r\n", "X: y\r\n\r\n"])
def test_what_comes_behind_an_early_answer_is_no_part_of_it(more):
    received = []
    for kind in (Http1Client, QuickClient):
        layer = kind(context())
        for event in (events.Start(), *STILL_ASKING):
            said(layer, event)
        answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        sent = (answer, more.encode(), b"GET /")
        received.append([said(layer, events.DataReceived(layer.conn, piece)) for piece in sent])
    assert received[0] == received[1]
    assert not any(one == (ResponseData, b"hello") for one in chain(*received[1]))


@pytest.mark.parametrize(("coding", "told"), [("", [b"helloworld"]), ("Content-Encoding: gzip", [b"hello", b"world"])])
def test_chunks_are_told_as_one_unless_each_is_to_be_decoded(coding, told):
    layer = QuickClient(context())
    for event in (events.Start(), *ASKED):
        said(layer, event)
    head = "\r\n".join(
        ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", *([coding] if coding else []), "", ""]
    ).encode()
    for first, rest in ((head, b""), (b"", head)):  # and again, on the same connection
        got = said(layer, events.DataReceived(layer.conn, first)) if first else []
        layer.response and layer.response.headers.pop("content-encoding", None)  # as an addon does that decodes it
        got += said(layer, events.DataReceived(layer.conn, rest + b"5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n"))
        assert [data for kind, data in got if kind is ResponseData] == told
        for event in ASKED:
            said(layer, event)


def _whole_bodies(got: list[object]) -> list[object]:
    """What was received, with the pieces of a body as one: there may be more of them or fewer."""
    body = b"".join(one[1] for one in got if isinstance(one, tuple))
    return [body, *(one for one in got if not (isinstance(one, tuple) and one[1]))]


@pytest.mark.parametrize("size", [0, 5, TOGETHER_BYTES + 1])
@pytest.mark.parametrize("framing", ["content-length", "transfer-encoding"])
def test_the_same_is_sent_and_what_is_sent_together_leaves_together(size, framing):
    request, response = http.Request.make("POST", "http://s/"), http.Response.make(200)
    for message in (request, response):
        del message.headers["content-length"]
        message.headers[framing] = "chunked" if framing == "transfer-encoding" else str(size)
    parts = {
        (Http1Server, QuickServer): (
            ResponseHeaders(1, response, not size),
            ResponseData(1, b"x" * size),
            ResponseEndOfMessage(1),
        ),
        (Http1Client, QuickClient): (
            RequestHeaders(1, request, not size),
            RequestData(1, b"x" * size),
            RequestEndOfMessage(1),
        ),
    }
    for kinds, message in parts.items():
        plain, quick, at_once = (kind(context()) for kind in (*kinds, kinds[1]))
        plain.request = quick.request = at_once.request = request
        sent = [part for part in message if getattr(part, "data", True)]
        did = [said(plain, part) for part in sent]
        assert [said(quick, part) for part in sent] == did
        pieces_of = said(at_once, together(sent))
        assert pieces(pieces_of) == pieces(list(chain(*did)))
        assert len(pieces_of) == (1 if size <= TOGETHER_BYTES else len(list(chain(*did))))


@pytest.mark.parametrize(
    ("head", "body", "more"),
    [
        ("Content-Length: 5", b"hello", b""),
        ("Content-Length: 0", b"", b""),
        ("Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n", b""),
        ("Content-Length: 5\r\nConnection: close", b"hello", b""),
        ("Content-Length: 5", b"hello", b"more"),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_whoever_hears_of_a_whole_answer_may_send_the_next_request_at_once(head, body, more, step):
    layer = QuickClient(context())
    request = http.Request.make("GET", "http://s/")
    for event in (events.Start(), RequestHeaders(1, request, end_stream=True), RequestEndOfMessage(1)):
        said(layer, event)
    answer, ended = f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + body, []
    pieces_of = [answer[at : at + step] for at in range(0, len(answer), step)]
    for piece in (*pieces_of[:-1], pieces_of[-1] + more):
        for command in layer.handle_event(events.DataReceived(layer.conn, piece)):
            parts = getattr(getattr(command, "event", None), "parts", [getattr(command, "event", None)])
            if isinstance(parts[-1], ResponseEndOfMessage):
                ended.append(layer.request is None)  # it has no other request under way
    assert ended == [not more and "close" not in head]
