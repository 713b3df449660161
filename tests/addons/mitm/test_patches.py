"""What is put in place of parts of mitmproxy is used by it, and stands where mitmproxy has what it stands for.

Where one of these fails after an update of mitmproxy, compare the part with the one it stands for, then
put down the new digest.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from h11._readers import ContentLengthReader
from mitmproxy import addonmanager, http, master, version
from mitmproxy.addons import tlsconfig
from mitmproxy.coretypes import multidict
from mitmproxy.proxy import mode_servers, server
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import Layer
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers import tls, websocket
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Connection, Http1Server
from mitmproxy.proxy.tunnel import TunnelLayer

from addons.mitm.connection_handler import GuardedConnectionHandler
from addons.mitm.fast.header_index import METHODS
from addons.mitm.fast.replacements import FAST
from addons.mitm.http_connections import GuardedHttp1Client
from addons.mitm.patches import MADE_FOR, Replacements, install
from addons.mitm.pinned_dial import dial
from proxy.system.listen_ports import ReservedPorts, listen_as

# Of each function that ours stand in for, or lean on, the digest of its source.
SOURCES = {
    server.ConnectionHandler.server_event: "a2b42657ebe8bf6d",
    server.ConnectionHandler.handle_connection: "95c3f93e9824e527",
    server.ConnectionHandler.handle_client: "01f1b7cc991c4711",
    server.ConnectionHandler.open_connection: "5e0b3cbaf7a4030a",
    server.ConnectionHandler.hook_task: "9ac7970160526268",
    mode_servers.ProxyConnectionHandler.handle_hook: "9f8b52fd798203c9",
    mode_servers.ServerInstance.handle_stream: "21eea06f208c752e",
    mode_servers.AsyncioServerInstance.listen: "7670a9038b44170d",
    mode_servers.AsyncioServerInstance._start: "f96507081fa6236b",
    addonmanager.AddonManager.__init__: "5e4ff02a74f2c6e7",
    addonmanager.AddonManager.handle_lifecycle: "38c97e792d1db5b7",
    addonmanager.AddonManager.trigger_event: "b763c59bc4992e33",
    addonmanager.AddonManager.invoke_addon: "13180532440359de",
    master.Master.__init__: "8e2a46cc1aca56ca",
    http.MessageData.__post_init__: "f65088e210cd9cc1",
    http.Headers: "947aa0298abd4010",
    multidict._MultiDict: "9d8341c83747569d",
    Http1Connection._handle_event: "2ac8db3e43ae743f",
    Http1Connection.read_body: "aece271029af36e4",
    Http1Connection.wait: "c99d0494a840a2b6",
    Http1Connection.mark_done: "dc5ed395ce4f0763",
    Http1Server: "cc8428d0bb6f79a5",
    Http1Client: "706b7a68f2809929",
    ContentLengthReader: "fdf438f5ca7e0d9d",
    HttpStream.handle_connect_finish: "eb3a0054cb5b716e",
    HttpStream.start_response_stream: "b0de9e9a5ee27276",
    HttpStream.passthrough: "a6df32aba1ae251a",
    Layer: "e98dedd896fb7cd2",
    TunnelLayer: "a0a2a31af17dfacb",
    tls.TLSLayer: "c52e04ed2c416749",
    tls.ServerTLSLayer: "8666fc7667d70e23",
    http_layers.HttpLayer: "8da4a8a48e637b88",
    http_layers.HttpClient: "8401d422afdaff15",
    tlsconfig.TlsConfig.tls_start_client: "05334c27c22a10ed",
    tlsconfig.TlsConfig.request: "84c6d74b564dde72",
    Context: "dd52bbec90eacace",
    websocket.WebsocketLayer.relay_messages: "2d451252c7287da0",
}

PATCHED = (
    (server, "asyncio"),
    (http_layers, "Http1Client"),
    (http_layers, "HttpClient"),
    (tls, "ServerTLSLayer"),
    (mode_servers, "ProxyConnectionHandler"),
    (mode_servers.AsyncioServerInstance, "listen"),
    (http.MessageData, "__post_init__"),
    *((http.Headers, name) for name in METHODS),
)


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    for owner, name in PATCHED:
        monkeypatch.setattr(owner, name, getattr(owner, name))


@pytest.mark.parametrize(("function", "known"), SOURCES.items(), ids=lambda value: getattr(value, "__qualname__", ""))
def test_mitmproxy_has_not_changed_under_what_replaces_it(function, known):
    assert hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16] == known


def test_mitmproxy_looks_up_what_is_replaced():
    assert "await asyncio.open_connection(" in inspect.getsource(server.ConnectionHandler.open_connection)
    assert "Http1Client" in http_layers.HttpClient._handle_event.__wrapped__.__code__.co_names
    assert {"HttpClient", "tls", "ServerTLSLayer"} <= {*http_layers.HttpLayer.get_connection.__code__.co_names}
    assert "ProxyConnectionHandler" in mode_servers.ServerInstance.handle_stream.__code__.co_names


@pytest.mark.parametrize("replacements", [Replacements(), FAST], ids=["plain", "fast"])
def test_mitmproxy_uses_our_parts(replacements):
    install(replacements, list)
    assert server.asyncio.open_connection is dial
    assert server.asyncio.CancelledError is asyncio.CancelledError
    assert http_layers.Http1Client is replacements.http1_client
    assert http_layers.HttpClient is replacements.http_client
    assert http_layers.tls.ServerTLSLayer is replacements.server_tls
    assert mode_servers.ProxyConnectionHandler is replacements.connection_handler


def test_nothing_of_fast_is_installed_with_the_switch_off():
    install(Replacements(), list)
    for owner, name in PATCHED:
        assert not getattr(getattr(owner, name), "__module__", "").startswith("addons.mitm.fast")
    for part in (getattr(Replacements(), name) for name in Replacements.__slots__):
        assert part == () or not part.__module__.startswith("addons.mitm.fast")


def test_what_is_there_for_speed_builds_on_what_is_there_for_safety():
    plain = Replacements()
    for name in ("addon_manager", "certificates", "connection_handler", "http_layer", "http1_client"):
        assert issubclass(getattr(FAST, name), getattr(plain, name))
    for name in ("http1_server", "http2_server", "stream"):
        assert issubclass(getattr(FAST.http_layer, name), getattr(plain.http_layer, name))
    assert (plain.connection_handler, plain.http1_client) == (GuardedConnectionHandler, GuardedHttp1Client)


@pytest.mark.parametrize("other", ["12.2.2", "13.0.0"])
def test_another_version_of_mitmproxy_is_refused(monkeypatch, other):
    assert version.VERSION == MADE_FOR
    monkeypatch.setattr(version, "VERSION", other)
    with pytest.raises(RuntimeError, match=other):
        install(Replacements(), list)


async def test_every_tcp_mode_listens_on_the_reserved_addresses_with_nodelay() -> None:
    reserved = ReservedPorts("listen", "127.0.0.1", 0)
    install(Replacements(), lambda: listen_as(reserved.addresses, ()))
    nodelay: list[int] = []

    async def take(reader: Any, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        nodelay.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    instance: Any = SimpleNamespace(handle_stream=take)
    (listening,) = await mode_servers.AsyncioServerInstance.listen(instance, "ignored", 1)
    assert [sock.getsockname() for sock in listening.sockets] == reserved.addresses
    reader, writer = await asyncio.open_connection(*reserved.addresses[0])
    assert await reader.read() == b""
    assert nodelay[0]
    writer.close()
    listening.close()
    reserved.close()
