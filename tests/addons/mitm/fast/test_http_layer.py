"""The HTTP layer for speed; tests/addons/mitm/test_http_layer.py compares it with the plain one."""

from __future__ import annotations

from mitmproxy.proxy.layers.http import HttpStream

from addons.mitm.fast.connection_handler import EnterTunnel
from addons.mitm.fast.http_layer import FastHttpLayer, FastHttpStream
from addons.mitm.fast.sync_hooks import SyncHooks
from addons.mitm.http_stream import GuardedHttpStream
from tests.addons.mitm.test_http_stream import Conversation

CONNECT = b"CONNECT mcp.example:443 HTTP/1.1\r\nHost: mcp.example:443\r\n\r\n"


def test_bounds_are_checked_around_the_faster_methods() -> None:
    order = FastHttpStream.__mro__
    assert order.index(SyncHooks) < order.index(GuardedHttpStream) < order.index(HttpStream)


def test_the_layers_around_a_tunnel_step_aside_unless_the_client_speaks_tls_with_the_proxy() -> None:
    for is_tls in (False, True):
        conversation = Conversation(FastHttpLayer)
        conversation.client.tls = is_tls
        assert conversation.ask(CONNECT).startswith(b"HTTP/1.1 200")
        assert any(isinstance(one, EnterTunnel) for one in conversation.commands) is not is_tls
