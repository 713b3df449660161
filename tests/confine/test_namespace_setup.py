"""The files and sockets of a confinement; test_launch.py tries to get out of one."""

from __future__ import annotations

import socket

import pytest

from proxy.confine.namespace_setup import bind_sockets, own_files
from tests.support.harness import free_port


def test_names_are_looked_up_by_our_resolver_and_nobody_else() -> None:
    files = own_files("box")
    assert files["/etc/resolv.conf"] == "nameserver 127.0.0.1\n"
    assert "127.0.0.1 localhost box\n" in files["/etc/hosts"]
    lines = [line for line in files["/etc/nsswitch.conf"].splitlines() if line.strip().startswith("hosts:")]
    assert set(lines) <= {"hosts: files dns"}


def test_the_sockets_are_on_loopback_alone() -> None:
    made = bind_sockets(free_port(), free_port())
    every = [*made.forwarder, *made.datagrams, *made.streams]
    assert {each.getsockname()[0] for each in every} <= {"127.0.0.1", "::1"}
    assert len(made.forwarder) == len(made.datagrams) == len(made.streams)
    for each in every:
        each.close()


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1 port {port}"):
            bind_sockets(port, free_port())
