"""Ports that workers share, and that nobody else does."""

from __future__ import annotations

import socket

import pytest

from proxy.errors import ConfigError
from proxy.system.listen_ports import ReservedPorts, format_address, listen_shared
from tests.support.timeouts import PATIENCE


def test_a_chosen_port_is_kept_and_shared_by_listeners_of_their_own() -> None:
    reserved = ReservedPorts("listen", "127.0.0.1", 0)
    (address,) = reserved.addresses
    first, second = listen_shared(address), listen_shared(address)
    assert first.getsockname() == second.getsockname() == address
    assert first.proto == socket.IPPROTO_TCP  # else asyncio leaves TCP_NODELAY off
    first.close()
    for _ in range(20):  # the reserved socket takes no connections: each comes to who listens
        with socket.create_connection(address, timeout=PATIENCE):
            second.accept()[0].close()
    second.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=PATIENCE)
    reserved.close()
    ReservedPorts("listen", *address).close()


def test_a_port_that_another_proxy_shares_among_its_workers_is_taken() -> None:
    theirs = ReservedPorts("listen", "127.0.0.1", 0)
    listener = listen_shared(theirs.addresses[0])
    with pytest.raises(ConfigError, match=r"setting health_listen = '127\.0\.0\.1:\d+': .*--health-listen 127"):
        ReservedPorts("health_listen", *theirs.addresses[0])
    listener.close()
    theirs.close()


def test_a_name_with_several_addresses_has_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (family, 1, 6, "", (host, 0)) for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    reserved = ReservedPorts("listen", "localhost", 0)
    (four, six) = reserved.addresses
    assert (four[0], six[0], four[1]) == ("127.0.0.1", "::1", six[1])
    assert [format_address(four), format_address(six)] == [f"127.0.0.1:{four[1]}", f"[::1]:{six[1]}"]
    listen_shared(six).close()
    reserved.close()


def test_a_name_that_leads_nowhere_is_told_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="--listen 127"):
        ReservedPorts("listen", "no-such-host.invalid", 1)
