"""mitmproxy listens where it is told to, and nothing of how it listens has changed."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import version
from mitmproxy.proxy import mode_servers

from addons.mitm.listening import MADE_FOR, replace_listening
from proxy.system.listen_ports import ReservedPorts

ORIGINAL = inspect.getsource(mode_servers.AsyncioServerInstance.listen)
START = inspect.getsource(mode_servers.AsyncioServerInstance._start)


@pytest.fixture(autouse=True)
def put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mode_servers.AsyncioServerInstance, "listen", mode_servers.AsyncioServerInstance.listen)


def test_mitmproxy_listens_as_it_did_when_this_was_written() -> None:
    digest = hashlib.sha256((ORIGINAL + START).encode()).hexdigest()
    assert (version.VERSION, digest[:16]) == (MADE_FOR, "c64d66cc0bad5dc0")


async def test_every_tcp_mode_listens_on_the_reserved_addresses_with_nodelay() -> None:
    reserved = ReservedPorts("listen", "127.0.0.1", 0)
    replace_listening(reserved.addresses)
    nodelay: list[int] = []

    async def take(reader: Any, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        nodelay.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    instance: Any = SimpleNamespace(handle_stream=take)
    (server,) = await mode_servers.AsyncioServerInstance.listen(instance, "ignored", 1)
    assert [sock.getsockname() for sock in server.sockets] == reserved.addresses
    reader, writer = await asyncio.open_connection(*reserved.addresses[0])
    assert await reader.read() == b""
    assert nodelay[0]
    writer.close()
    server.close()
    reserved.close()


def test_another_version_of_mitmproxy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "VERSION", "99.0")
    with pytest.raises(RuntimeError, match="99"):
        replace_listening([])
