"""Open TLS carries what mitmproxy's own carries: every byte, in order, to the end that the peer sets or a failure."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layer import Layer
from mitmproxy.proxy.layers.tls import ClientTLSLayer, TlsStartClientHook
from mitmproxy.proxy.tunnel import TunnelState

from addons.mitm.fast.tls_records import FastClientTls
from tests.support import tls_fixture as tls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mitmproxy.proxy.layer import CommandGenerator

    from addons.mitm.certificates import Certificates

LARGE = bytes(range(256)) * 1200
HOST = "a.test"


class Inside(Layer):
    """Answers what it is told to, and remembers what came."""

    def __init__(self, context) -> None:
        super().__init__(context)
        self.came: list[bytes | type] = []
        self.answers: list[bytes | None] = []

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.DataReceived):
            self.came.append(event.data)
            for answer in self.answers:
                if answer is None:
                    yield commands.Log("between")
                else:
                    yield commands.SendData(self.context.client, answer)
        elif isinstance(event, events.ConnectionClosed):
            self.came.append(type(event))


class Tunnel:
    """A client on the far side of a layer."""

    def __init__(
        self, kind: type[ClientTLSLayer], addon: Certificates, early: Callable[[tls.Far], bytes] | None = None
    ) -> None:
        self.context, self._addon = tls.context(), addon
        Layer(self.context)  # what mitmproxy has around it
        self.layer = kind(self.context)
        self.inside = self.layer.child_layer = Inside(self.context)
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        self.far = tls.Far(trust, name=HOST)
        self.sent: list[bytes | None] = []
        self.logged: list[str] = []
        self._give(events.Start())
        data = self.far.take(b"")
        while data:
            self.receive(data + (early(self.far) if early is not None and self.far.done else b""))
            data = self.far.take(b"".join(filter(None, self.sent)))
            self.sent.clear()
        assert self.layer.tunnel_state is TunnelState.OPEN

    def receive(self, data: bytes) -> None:
        self._give(events.DataReceived(self.context.client, data))

    def close(self) -> None:
        self.context.client.state &= ~ConnectionState.CAN_READ
        self._give(events.ConnectionClosed(self.context.client))

    def _give(self, event: events.Event) -> None:
        for command in self.layer.handle_event(event):
            if isinstance(command, commands.SendData):
                self.sent.append(command.data)
            elif isinstance(command, commands.Log):
                self.logged.append(command.message)
                self.sent.append(None)
            elif isinstance(command, commands.StartHook):
                if isinstance(command, TlsStartClientHook):
                    self._addon.tls_start_client(command.data)
                self._give(events.HookCompleted(command))

    def heard(self) -> bytes:
        """Return what the client reads of what was sent."""
        self.far.take(b"".join(filter(None, self.sent)))
        return self.far.said()


@pytest.fixture(scope="module")
def addon(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("tls")
    yield from tls.certificates(folder, tls.Authority(folder).file)


@pytest.fixture(params=[ClientTLSLayer, FastClientTls])
def tunnel(request, addon) -> Tunnel:
    return Tunnel(request.param, addon)


@pytest.mark.parametrize("cut", [1, 5, 17, 1 << 14, 1 << 20])
def test_every_byte_arrives_in_order_however_it_is_cut(tunnel: Tunnel, cut: int):
    said = LARGE if cut > 100 else b"hello"
    data = b"".join(tunnel.far.say(said[at : at + 20_000]) for at in range(0, len(said), 20_000))
    for at in range(0, len(data), cut):
        tunnel.receive(data[at : at + cut])
    assert b"".join(tunnel.inside.came) == said


def test_what_is_sent_arrives_and_what_is_sent_at_once_leaves_together(tunnel: Tunnel):
    tunnel.inside.answers = [b"one", b"two", None, LARGE, b"three"]
    tunnel.receive(tunnel.far.say(b"ask"))
    if isinstance(tunnel.layer, FastClientTls):
        assert [piece is None for piece in tunnel.sent] == [False, True, False]
    assert tunnel.heard() == b"onetwo" + LARGE + b"three"


def test_the_end_that_a_peer_sets_comes_after_what_it_said_and_once(tunnel: Tunnel):
    last = tunnel.far.say(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        tunnel.far.tls.unwrap()
    tunnel.receive(last + tunnel.far._out.read())
    tunnel.close()
    assert tunnel.inside.came == [b"last", events.ConnectionClosed]
    assert not tunnel.context.client.state & ConnectionState.CAN_READ


def test_an_end_without_a_goodbye_is_passed_on(tunnel: Tunnel):
    tunnel.receive(tunnel.far.say(b"last"))
    tunnel.close()
    assert tunnel.inside.came == [b"last", events.ConnectionClosed]


def test_a_forged_record_is_not_passed_on(tunnel: Tunnel):
    good, forged = tunnel.far.say(b"good"), bytearray(tunnel.far.say(b"evil"))
    forged[-1] ^= 1
    tunnel.receive(good + bytes(forged))
    tunnel.receive(tunnel.far.say(b"later"))
    assert b"".join(tunnel.inside.came) == b"good"
    assert "TLS Error" in tunnel.logged[0]


@pytest.mark.parametrize("kind", [ClientTLSLayer, FastClientTls])
def test_what_comes_along_with_the_end_of_the_handshake_arrives(kind: type[ClientTLSLayer], addon: Certificates):
    def last_words(far: tls.Far) -> bytes:
        said = far.say(b"early") + far.say(LARGE[:9])
        with pytest.raises(ssl.SSLWantReadError):
            far.tls.unwrap()
        return said + far._out.read()

    tunnel = Tunnel(kind, addon, last_words)
    assert b"".join(each for each in tunnel.inside.came if isinstance(each, bytes)) == b"early" + LARGE[:9]
    assert tunnel.inside.came[-1] is events.ConnectionClosed
    assert not tunnel.context.client.state & ConnectionState.CAN_READ


@pytest.mark.parametrize("kind", [ClientTLSLayer, FastClientTls])
def test_a_forged_record_at_the_end_of_the_handshake_is_not_passed_on(kind: type[ClientTLSLayer], addon: Certificates):
    def forge(far: tls.Far) -> bytes:
        good, forged = far.say(b"good"), bytearray(far.say(b"evil"))
        forged[-1] ^= 1
        return good + bytes(forged)

    tunnel = Tunnel(kind, addon, forge)
    assert tunnel.inside.came == [b"good"]
    assert "TLS Error" in tunnel.logged[0]


def test_a_client_is_shown_its_certificate_in_tls_1_3(addon: Certificates):
    assert Tunnel(FastClientTls, addon).far.tls.version() == "TLSv1.3"
