"""The HTTP layer for speed; tests/addons/mitm/test_http_layer.py compares it with the plain one."""

from __future__ import annotations

from mitmproxy.proxy import commands
from mitmproxy.proxy.layers.http import HttpStream

from addons.mitm.fast.http_layer import FastHttpLayer, FastHttpStream
from addons.mitm.fast.sync_hooks import SyncHooks
from addons.mitm.http_stream import GuardedHttpStream
from tests.addons.mitm.test_http_stream import REQUEST, Conversation


def test_a_stream_stops_at_hooks_in_another_way_and_is_bounded_in_the_same() -> None:
    order = FastHttpStream.__mro__
    assert order.index(SyncHooks) < order.index(GuardedHttpStream) < order.index(HttpStream)
    assert "_handle_event" not in {*vars(FastHttpStream), *vars(SyncHooks)}


def test_nothing_is_stored_of_hooks_that_ended_and_of_streams_that_are_over() -> None:
    conversation = Conversation(FastHttpLayer)
    for _ in range(3):
        conversation.ask(REQUEST)
    assert any(isinstance(one, commands.StartHook) for one in conversation.commands)
    assert conversation.layer.command_sources == {}
    assert conversation.layer.streams == {}
