"""The HTTP layer has bounded parts, with the layers for speed and without, and finds the stream of a flow."""

from __future__ import annotations

import pytest
from mitmproxy.connection import Client
from mitmproxy.options import Options
from mitmproxy.proxy import events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import NextLayer
from mitmproxy.proxy.layers import http as http_layers

from addons.limits import BodyOverdue, Limits
from addons.mitm.fast.http_layer import FastHttpLayer
from addons.mitm.http_connections import GuardedHttp1Server, GuardedHttp2Server
from addons.mitm.http_layer import GuardedHttpLayer, fork
from addons.mitm.http_stream import GuardedHttpStream
from tests.addons.mitm.test_http_stream import Conversation

HEAD = b"POST http://mcp.example/mcp HTTP/1.1\r\nHost: mcp.example\r\nContent-Length: 2\r\n\r\n"


@pytest.fixture(params=[GuardedHttpLayer, FastHttpLayer])
def kind(request: pytest.FixtureRequest) -> type[GuardedHttpLayer]:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize(("alpn", "server"), [(b"h2", GuardedHttp2Server), (None, GuardedHttp1Server)])
def test_the_connection_with_a_client_is_bounded(
    kind: type[GuardedHttpLayer], alpn: bytes | None, server: type[object]
) -> None:
    conversation = Conversation(kind, alpn=alpn)
    assert isinstance(conversation.layer.connections[conversation.client], server)


@pytest.mark.parametrize("alpn", [b"h2", None])
def test_no_unbounded_connection_is_made_beside_it(
    kind: type[GuardedHttpLayer], alpn: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Http1Server", "Http2Server", "Http3Server"):
        monkeypatch.setattr(http_layers, name, None)
    assert Conversation(kind, alpn=alpn).layer.connections


def test_an_event_for_a_flow_goes_to_its_stream_and_to_no_other(kind: type[GuardedHttpLayer]) -> None:
    conversation = Conversation(kind, Limits(body_seconds=5))
    conversation.ask(HEAD)
    (stream,) = conversation.layer.streams.values()
    assert isinstance(stream, GuardedHttpStream)
    other = Conversation(kind)
    other.ask(HEAD)
    (foreign,) = other.layer.streams.values()
    assert conversation.tell(BodyOverdue(foreign.flow)) == b""
    assert conversation.tell(BodyOverdue(stream.flow)).startswith(b"HTTP/1.1 408")


def test_both_layers_send_the_same_bytes() -> None:
    plain, fast = Conversation(GuardedHttpLayer), Conversation(FastHttpLayer)
    for piece in (HEAD, b"{", b"}" + HEAD, b"{}" + HEAD + b"{}"):
        assert plain.ask(piece) == fast.ask(piece)
    assert plain.tell(events.ConnectionClosed(plain.client)) == fast.tell(events.ConnectionClosed(fast.client)) == b""


def test_a_fork_is_what_mitmproxy_makes_of_a_context() -> None:
    client = Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), timestamp_start=1)
    context = Context(client, Options())
    context.layers.append(NextLayer(context))
    ours, theirs = fork(context), context.fork()
    assert vars(ours) == vars(theirs)
    assert ours.server is context.server
    ours.layers.clear()
    assert len(context.layers) == 1
