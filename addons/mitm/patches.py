"""Every place where a part of mitmproxy is replaced. Replacements hold for the process.

Each was written against the version below. Any other is refused at the start: where mitmproxy has moved a part, a
check may not be made any more. tests/addons/mitm/test_patches.py fails when the code behind a replacement changes,
and says where to look.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mitmproxy import version
from mitmproxy.proxy import mode_servers, server
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers import tls as tls_layers

from addons.mitm.addon_manager import FailClosedAddonManager
from addons.mitm.certificates import Certificates
from addons.mitm.connection_handler import GuardedConnectionHandler
from addons.mitm.http_connections import GuardedHttp1Client
from addons.mitm.http_layer import GuardedHttpLayer
from addons.mitm.pinned_dial import DiallingAsyncio
from proxy.system.listen_ports import BACKLOG

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from mitmproxy.addonmanager import AddonManager
    from mitmproxy.proxy.layers.http._http1 import Http1Client


MADE_FOR: Final = "12.2.3"


@dataclass(frozen=True, slots=True)
class Replacements:
    """What replaces parts of mitmproxy. By default what function and safety need; fast/ has the one for speed."""

    addon_manager: type[AddonManager] = FailClosedAddonManager
    certificates: type[Certificates] = Certificates
    connection_handler: type[GuardedConnectionHandler] = GuardedConnectionHandler
    http_layer: type[GuardedHttpLayer] = GuardedHttpLayer
    http_client: type[http_layers.HttpClient] = http_layers.HttpClient
    http1_client: type[Http1Client] = GuardedHttp1Client
    client_tls: type[tls_layers.ClientTLSLayer] = tls_layers.ClientTLSLayer
    server_tls: type[tls_layers.ServerTLSLayer] = tls_layers.ServerTLSLayer
    addons: tuple[Callable[[], object], ...] = ()
    """Makes addons that stand behind `certificates`."""
    functions: tuple[Callable[[], None], ...] = ()
    """Each replaces single functions."""


def install(replacements: Replacements, open_sockets: Callable[[], Sequence[socket.socket]]) -> None:
    """Replace those parts that mitmproxy looks up itself, and listen on what `open_sockets` opens.

    Raises RuntimeError for a version of mitmproxy that this is not made for.
    """
    if version.VERSION != MADE_FOR:
        raise RuntimeError(f"this Interlock is made for mitmproxy {MADE_FOR}, not {version.VERSION}; install its lock")
    server.asyncio = DiallingAsyncio()  # type: ignore[assignment]
    mode_servers.ProxyConnectionHandler = replacements.connection_handler  # type: ignore[misc]
    # The layers of a client's connection are ours to choose (next_layer.py); those of a server's are named in these.
    http_layers.Http1Client = replacements.http1_client  # type: ignore[misc]
    http_layers.HttpClient = replacements.http_client  # type: ignore[misc]
    tls_layers.ServerTLSLayer = replacements.server_tls  # type: ignore[misc]
    # HTTP/3 runs over QUIC. mitmproxy would agree to it over TCP as well, and crash.
    tls_layers.HTTP_ALPNS = (tls_layers.HTTP2_ALPN, *tls_layers.HTTP1_ALPNS)  # type: ignore[assignment]
    for replace in replacements.functions:
        replace()
    _replace_listening(open_sockets)


def _replace_listening(open_sockets: Callable[[], Sequence[socket.socket]]) -> None:
    """Listen on a worker's own sockets: mitmproxy has no SO_REUSEPORT, and workers share their ports."""

    async def listen(self: mode_servers.AsyncioServerInstance[Any], _host: str, _port: int) -> list[asyncio.Server]:
        opened = open_sockets()
        return [await asyncio.start_server(self.handle_stream, sock=sock, backlog=BACKLOG) for sock in opened]

    mode_servers.AsyncioServerInstance.listen = listen  # type: ignore[assignment,method-assign]
