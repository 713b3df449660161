"""Sockets from another process: the old proxy's, and a service manager's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from proxy.errors import ConfigError
from proxy.system.handed_sockets import HandedSockets, activated_sockets, listens


def test_a_socket_is_taken_once_by_purpose_and_address() -> None:
    first, second = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    port = first.getsockname()[1]
    handed = HandedSockets([("health", first), ("console", second)])
    assert handed.take("health", ("127.0.0.1", port + 1)) is None
    assert handed.take("health", ("127.0.0.2", 0)) is None
    assert handed.take("health", ("127.0.0.1", port)) is first
    assert handed.take("health") is None
    handed.close()
    assert second.fileno() == -1
    assert first.fileno() != -1
    first.close()


def test_a_bound_socket_does_not_listen() -> None:
    with socket.socket() as bound, socket.create_server(("127.0.0.1", 0)) as listener:
        bound.bind(("127.0.0.1", 0))
        assert [listens(bound), listens(listener)] == [False, True]


PROGRAM = """
import os
from proxy.system.handed_sockets import activated_sockets
os.environ["LISTEN_PID"] = str(os.getpid())
try:
    (sock,) = activated_sockets(os.environ)
    print(sock.getsockname()[1], sock.proto, os.get_inheritable(3), [n for n in os.environ if n.startswith("LISTEN")])
except Exception as error:
    print(type(error).__name__, error)
"""


def activate(sock: socket.socket) -> str:
    """Run the program as a service manager does, with a socket as descriptor 3."""
    program = f"import os; os.dup2({sock.fileno()}, 3); exec({PROGRAM!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        pass_fds=[sock.fileno()],
        env={**os.environ, "LISTEN_FDS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_service_managers_socket_is_used_and_not_passed_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert activate(listener) == f"{listener.getsockname()[1]} {socket.IPPROTO_TCP} False []"


def test_what_is_no_listening_tcp_socket_is_refused() -> None:
    with socket.socket() as bound:
        assert "ConfigError" in activate(bound)
        assert "ListenStream=" in activate(bound)


def test_sockets_of_another_process_are_none_of_ours() -> None:
    environ = {"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "1"}
    assert activated_sockets(environ) == []
    assert environ == {}


def test_a_descriptor_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="LISTEN_FDS"):
        activated_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "100000"})
