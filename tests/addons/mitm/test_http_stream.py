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
from addons.mitm.fast.http_layer import FastHttpLayer
from addons.mitm.http_layer import GuardedHttpLayer

REQUEST = b"POST http://mcp.example/mcp HTTP/1.1\r\nHost: mcp.example\r\nContent-Length: 2\r\n\r\n{}"


class Options(options.Options):
    """mitmproxy's, with those that its proxy server adds."""

    def __init__(self) -> None:
        super().__init__()
        proxyserver.Proxyserver().load(self)  # type: ignore[arg-type]
        self.update(connection_strategy="lazy")


class Conversation:
    """A client that asks, and a proxy that answers by itself."""

    def __init__(
        self, kind: type[GuardedHttpLayer] = GuardedHttpLayer, limits: Limits | None = None, alpn: bytes | None = None
    ) -> None:
        self.client = connection.Client(
            peername=("127.0.0.1", 1),
            sockname=("127.0.0.1", 2),
            state=connection.ConnectionState.OPEN,
            proxy_mode=ProxyMode.parse("regular"),
            alpn=alpn,
        )
        self.layer = kind(context.Context(self.client, Options()), HTTPMode.regular, limits or Limits())
        self.commands: list[commands.Command] = []
        self.flows: list[weakref.ref[http.HTTPFlow]] = []
        self.tell(events.Start())

    def ask(self, data: bytes = REQUEST) -> bytes:
        """Send a request, and give what is sent back."""
        return self.tell(events.DataReceived(self.client, data))

    def wake(self) -> bytes:
        """Let the time pass that the last timer was set for, and give what is sent."""
        return self.tell(events.Wakeup([one for one in self.commands if isinstance(one, commands.RequestWakeup)][-1]))

    def tell(self, event: events.Event) -> bytes:
        """Pass an event to the layer, end its hooks at once, and give what is sent."""
        sent, waiting = b"", [event]
        while waiting:
            for command in self.layer.handle_event(waiting.pop(0)):
                self.commands.append(command)
                if isinstance(command, commands.SendData):
                    sent += command.data
                if isinstance(command, HttpRequestHook):
                    command.flow.response = http.Response.make(200, b"{}")
                    self.flows.append(weakref.ref(command.flow))
                if isinstance(command, commands.StartHook) and command.blocking:
                    waiting.append(events.HookCompleted(command))
        return sent


@pytest.mark.parametrize("kind", [GuardedHttpLayer, FastHttpLayer])
def test_a_request_that_is_over_is_freed_at_once(kind: type[GuardedHttpLayer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http.MessageData, "__post_init__", lambda _: None)  # its checks leave tracebacks behind
    conversation = Conversation(kind)
    gc.disable()
    try:
        answers = [conversation.ask() for _ in range(3)]
        conversation.commands.clear()
        alive = [flow() for flow in conversation.flows]
    finally:
        gc.enable()
    assert all(answer.startswith(b"HTTP/1.1 200 OK\r\n") for answer in answers)
    assert alive == [None, None, None]


@pytest.mark.parametrize("kind", [GuardedHttpLayer, FastHttpLayer])
@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Content-Length: 1001\r\n\r\n", b"413"),
        (b"Content-Length: 1000\r\n\r\n" + bytes(1000), b"200"),
        (b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + bytes(1001) + b"\r\n0\r\n\r\n", b"413"),
        (b"X: a\0b\r\nContent-Length: 0\r\n\r\n", b"400"),
    ],
)
def test_a_body_past_its_limit_and_a_header_with_a_nul_are_refused(
    kind: type[GuardedHttpLayer], head: bytes, status: bytes
) -> None:
    conversation = Conversation(kind, Limits(large_uploads=(), body_bytes=1000))
    answer = conversation.ask(b"POST http://mcp.example/mcp HTTP/1.1\r\nHost: mcp.example\r\n" + head)
    assert answer.split(b" ", 2)[1] == status


@pytest.mark.parametrize("kind", [GuardedHttpLayer, FastHttpLayer])
def test_a_refused_client_that_sends_on_is_closed_after_a_while(kind: type[GuardedHttpLayer]) -> None:
    conversation = Conversation(kind, Limits(large_uploads=(), body_bytes=1000))
    head = b"POST http://mcp.example/mcp HTTP/1.1\r\nHost: mcp.example\r\nContent-Length: 5000\r\n\r\n"
    assert conversation.ask(head).startswith(b"HTTP/1.1 413")
    assert conversation.ask(bytes(500)) == b""
    assert not any(isinstance(one, commands.CloseConnection) for one in conversation.commands)
    conversation.wake()
    assert any(isinstance(one, commands.CloseConnection) for one in conversation.commands)
