"""What is put in place of parts of mitmproxy is used by it, and stands where mitmproxy has what it stands for.

Where one of these fails after an update of mitmproxy, compare the part with the one it stands for, then
put down the new digest.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import inspect

import pytest
from h11._readers import ContentLengthReader
from mitmproxy import addonmanager, http, master, optmanager, version
from mitmproxy.addons import tlsconfig
from mitmproxy.connection import Client
from mitmproxy.coretypes import multidict
from mitmproxy.net.http import http1
from mitmproxy.options import Options
from mitmproxy.proxy import mode_servers, server
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import Layer
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers import tls, websocket
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.layers.http._http1 import Http1Client, Http1Connection, Http1Server
from mitmproxy.proxy.tunnel import TunnelLayer

from addons.mitm import patches
from addons.mitm.fast import header_checks
from addons.mitm.fast.connection_handler import DirectHandler
from addons.mitm.fast.header_index import METHODS
from addons.mitm.fast.tls_records import OpenServerTls
from addons.mitm.http_connections import GuardedHttp1Client
from addons.mitm.http_layer import QuickHttpClient
from addons.mitm.pinned_dial import dial

# Of each function that ours stand in for, or lean on, the digest of its source.
SOURCES = {
    server.ConnectionHandler.server_event: "a2b42657ebe8bf6d",
    server.ConnectionHandler.handle_connection: "95c3f93e9824e527",
    server.ConnectionHandler.handle_client: "01f1b7cc991c4711",
    server.ConnectionHandler.open_connection: "5e0b3cbaf7a4030a",
    server.ConnectionHandler.hook_task: "9ac7970160526268",
    mode_servers.ProxyConnectionHandler.handle_hook: "9f8b52fd798203c9",
    mode_servers.ServerInstance.handle_stream: "21eea06f208c752e",
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
    HttpStream.passthrough: "a6df32aba1ae251a",
    Layer: "e98dedd896fb7cd2",
    TunnelLayer: "a0a2a31af17dfacb",
    tls.TLSLayer: "c52e04ed2c416749",
    tls.ServerTLSLayer: "8666fc7667d70e23",
    http_layers.HttpLayer: "8da4a8a48e637b88",
    http_layers.HttpClient: "8401d422afdaff15",
    optmanager._Option: "eb3f037b6cc43fb7",
    tlsconfig.TlsConfig.tls_start_client: "05334c27c22a10ed",
    tlsconfig.TlsConfig.request: "84c6d74b564dde72",
    Context: "dd52bbec90eacace",
    websocket.WebsocketLayer.relay_messages: "2d451252c7287da0",
}


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    for owner, name in (
        (server, "asyncio"),
        (http_layers, "Http1Client"),
        (http_layers, "HttpClient"),
        (tls, "ServerTLSLayer"),
        (mode_servers, "ProxyConnectionHandler"),
        (http.MessageData, "__post_init__"),
        (optmanager._Option, "current"),
        (http_layers, "validate_headers"),
        (http1, "expected_http_body_size"),
        (Context, "fork"),
        *((http.Headers, name) for name in METHODS),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))


@pytest.mark.parametrize(("function", "known"), SOURCES.items(), ids=lambda value: getattr(value, "__qualname__", ""))
def test_mitmproxy_has_not_changed_under_what_stands_in_for_it(function, known):
    assert hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16] == known


def test_mitmproxy_takes_our_parts():
    patches.embed()
    assert server.asyncio.open_connection is dial
    assert server.asyncio.CancelledError is asyncio.CancelledError
    assert "await asyncio.open_connection(" in inspect.getsource(server.ConnectionHandler.open_connection)
    assert http_layers.Http1Client is GuardedHttp1Client
    assert "Http1Client" in http_layers.HttpClient._handle_event.__wrapped__.__code__.co_names
    assert http_layers.HttpClient is QuickHttpClient
    assert http_layers.tls.ServerTLSLayer is OpenServerTls
    assert {"HttpClient", "tls", "ServerTLSLayer"} <= {*http_layers.HttpLayer.get_connection.__code__.co_names}
    assert mode_servers.ProxyConnectionHandler is DirectHandler
    assert "ProxyConnectionHandler" in mode_servers.ServerInstance.handle_stream.__code__.co_names
    assert http_layers.validate_headers is header_checks.validate_headers
    assert "validate_headers" in http_layers.validate_request.__code__.co_names
    assert "validate_headers" in HttpStream.check_invalid.__code__.co_names
    assert http1.expected_http_body_size is header_checks.expected_http_body_size
    assert "expected_http_body_size" in Http1Server.read_headers.__code__.co_names
    assert {name: getattr(http.Headers, name) for name in METHODS} == METHODS
    http.RequestData(*[None] * len(dataclasses.fields(http.RequestData)))  # whatever the types


def test_another_version_of_mitmproxy_is_refused(monkeypatch):
    monkeypatch.setattr(version, "VERSION", "13.0.0")
    with pytest.raises(RuntimeError, match=r"13\.0\.0"):
        patches.embed()


def test_options_and_contexts_are_as_without_ours(restored):
    options, client = Options(), Client(peername=("c", 1), sockname=("p", 2))
    plain = {name: getattr(options, name) for name in options.keys()}  # noqa: SIM118  it is no mapping
    before = vars(Context(client, options).fork()).keys()
    patches.embed()
    assert {name: getattr(options, name) for name in options.keys()} == plain  # noqa: SIM118
    options.mode.append("changed")
    assert options.mode == plain["mode"]
    context = Context(client, options)
    fork = context.fork()
    assert vars(fork).keys() == before
    assert vars(fork) == vars(context)
    assert fork.layers is not context.layers
