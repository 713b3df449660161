"""A request that is over is gone at once, with its bodies, and waits for no look for garbage."""

from __future__ import annotations

import gc
import weakref

import pytest
from mitmproxy import connection, http, options
from mitmproxy.addons import proxyserver
from mitmproxy.proxy import commands, context, events
from mitmproxy.proxy.layers.http import HTTPMode, HttpRequestHook
from mitmproxy.proxy.mode_specs import ProxyMode

from addons.limits import Limits
from addons.mitm.http_layer import GuardedHttpLayer

REQUEST = b"POST http://mcp.example/mcp HTTP/1.1\r\nHost: mcp.example\r\nContent-Length: 2\r\n\r\n{}"


class Options(options.Options):
    """mitmproxy's, with those that its proxy server adds."""

    def __init__(self) -> None:
        super().__init__()
        proxyserver.Proxyserver().load(self)  # type: ignore[arg-type]


class Conversation:
    """A client that asks, and a proxy that answers by itself."""

    def __init__(self) -> None:
        self.client = connection.Client(
            peername=("127.0.0.1", 1),
            sockname=("127.0.0.1", 2),
            state=connection.ConnectionState.OPEN,
            proxy_mode=ProxyMode.parse("regular"),
        )
        self.layer = GuardedHttpLayer(context.Context(self.client, Options()), HTTPMode.regular, Limits())
        self.flows: list[weakref.ref[http.HTTPFlow]] = []
        self._tell(events.Start())

    def ask(self) -> bytes:
        """Send a request, and give what is sent back."""
        return self._tell(events.DataReceived(self.client, REQUEST))

    def _tell(self, event: events.Event) -> bytes:
        sent, waiting = b"", [event]
        while waiting:
            for command in self.layer.handle_event(waiting.pop(0)):
                if isinstance(command, commands.SendData):
                    sent += command.data
                if isinstance(command, HttpRequestHook):
                    command.flow.response = http.Response.make(200, b"{}")
                    self.flows.append(weakref.ref(command.flow))
                if isinstance(command, commands.StartHook):
                    waiting.append(events.HookCompleted(command))
        return sent


def test_a_request_that_is_over_is_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http.MessageData, "__post_init__", lambda _: None)  # its checks leave tracebacks behind
    conversation = Conversation()
    gc.disable()
    try:
        answers = [conversation.ask() for _ in range(3)]
        alive = [flow() for flow in conversation.flows]
    finally:
        gc.enable()
    assert all(answer.startswith(b"HTTP/1.1 200 OK\r\n") for answer in answers)
    assert alive == [None, None, None]
