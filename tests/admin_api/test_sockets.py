"""Sockets for operators alone."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from proxy.admin_api.sockets import connect_unix, listen_tcp, listen_unix
from proxy.errors import ConfigError
from tests.support.timeouts import PATIENCE


def reaches(path: Path, listener: socket.socket) -> bool:
    with connect_unix(path, 5) as client:
        accepted, _ = listener.accept()
        with accepted:
            client.sendall(b"x")
            return accepted.recv(1) == b"x"


def test_a_socket_is_for_its_owner_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "operator.sock"
    with listen_unix(path) as listener:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(tmp_path.iterdir()) == [path]
        assert reaches(path, listener)


def test_a_folder_deeper_than_a_sockets_path_may_be_is_no_hindrance(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 100) / ("e" * 100)
    folder.mkdir(parents=True)
    with listen_unix(folder / "operator.sock") as listener:
        assert reaches(folder / "operator.sock", listener)


@pytest.mark.parametrize("left", ["a file", "a socket"])
def test_what_a_killed_proxy_left_is_replaced(left: str, tmp_path: Path) -> None:
    path = tmp_path / "operator.sock"
    if left == "a socket":
        listen_unix(path).close()
    else:
        path.write_text("")
    with listen_unix(path) as listener:
        assert reaches(path, listener)


def test_where_nobody_listens_there_is_no_connection(tmp_path: Path) -> None:
    for path in (tmp_path / "gone", tmp_path / "no" / "folder"):
        with pytest.raises(FileNotFoundError):
            connect_unix(path, 1)
    listen_unix(tmp_path / "left").close()
    with pytest.raises(ConnectionRefusedError):
        connect_unix(tmp_path / "left", 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_tcp_address_is_listened_on(host: str) -> None:
    with listen_tcp(host, 0) as listener, socket.create_connection(listener.getsockname()[:2], timeout=PATIENCE):
        assert listener.accept()[0].close() is None


def test_an_address_that_cannot_be_had_is_told_with_the_setting(tmp_path: Path) -> None:
    with listen_tcp("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match=r"operator_listen = '127.0.0.1:"):
        listen_tcp("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigError, match=r"operator_listen = 'nowhere.invalid:1'"):
        listen_tcp("nowhere.invalid", 1)
