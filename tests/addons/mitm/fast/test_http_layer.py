"""The HTTP layer for speed; tests/addons/mitm/test_http_layer.py compares it with the plain one."""

from __future__ import annotations

from mitmproxy.proxy import commands
from mitmproxy.proxy.layers.http import HttpStream

from addons.mitm.fast.connection_handler import EnterTunnel
from addons.mitm.fast.http1_batch import BatchingHttp1
from addons.mitm.fast.http_layer import FastHttp1Client, FastHttp1Server, FastHttpLayer, FastHttpStream
from addons.mitm.fast.sync_hooks import SyncHooks
from addons.mitm.http_connections import GuardedHttp1Client, GuardedHttp1Server
from addons.mitm.http_layer import GuardedHttpLayer
from addons.mitm.http_stream import GuardedHttpStream
from tests.addons.mitm.test_http_stream import REQUEST, Conversation

CONNECT = b"CONNECT mcp.example:443 HTTP/1.1\r\nHost: mcp.example:443\r\n\r\n"


def test_bounds_are_checked_around_the_faster_methods() -> None:
    for fast, guarded in ((FastHttp1Server, GuardedHttp1Server), (FastHttp1Client, GuardedHttp1Client)):
        order = fast.__mro__
        assert order.index(guarded) < order.index(BatchingHttp1)
    order = FastHttpStream.__mro__
    assert order.index(SyncHooks) < order.index(GuardedHttpStream) < order.index(HttpStream)


def test_a_response_leaves_in_one_write() -> None:
    sent = {}
    for kind in (GuardedHttpLayer, FastHttpLayer):
        conversation = Conversation(kind)
        conversation.ask(REQUEST)
        sent[kind] = [one for one in conversation.commands if isinstance(one, commands.SendData)]
    assert len(sent[FastHttpLayer]) == 1 < len(sent[GuardedHttpLayer])


def test_the_layers_around_a_tunnel_step_aside_unless_the_client_speaks_tls_with_the_proxy() -> None:
    for is_tls in (False, True):
        conversation = Conversation(FastHttpLayer)
        conversation.client.tls = is_tls
        assert conversation.ask(CONNECT).startswith(b"HTTP/1.1 200")
        assert any(isinstance(one, EnterTunnel) for one in conversation.commands) is not is_tls
