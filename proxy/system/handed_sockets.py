"""Open sockets that another process gave to this one: the proxy that it replaces, or a service manager.

A socket that is handed on is never closed in between, so no connection is refused: those that nobody has accepted yet
wait in it.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    type Address = tuple[str, int]

FIRST_DESCRIPTOR: Final = 3  # of a service manager's sockets, by its protocol


class HandedSockets:
    """Sockets by what they are for. Whoever needs one takes it; `close` closes those that nobody took."""

    def __init__(self, sockets: Iterable[tuple[str, socket.socket]] = ()) -> None:
        self._sockets = list(sockets)

    def take(self, purpose: str, address: Address | None = None) -> socket.socket | None:
        """Return a socket for a purpose, at an address if one is given; port 0 stands for any. None: there is none."""
        for index, (name, sock) in enumerate(self._sockets):
            if name == purpose and (address is None or _is_at(sock, address)):
                del self._sockets[index]
                return sock
        return None

    def take_all(self, purpose: str) -> list[socket.socket]:
        taken = []
        while (sock := self.take(purpose)) is not None:
            taken.append(sock)
        return taken

    def close(self) -> None:
        for _, sock in self._sockets:
            sock.close()
        self._sockets.clear()


def listens(sock: socket.socket) -> bool:
    """Return whether a socket accepts connections, and is not bound alone."""
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def activated_sockets(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """Return the sockets of the agents' port that a service manager opened (LISTEN_FDS), and forget about them.

    Raises ConfigError for something else than a TCP socket that listens.
    """
    given = [environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")]
    if given[0] != str(os.getpid()) or not given[1].isdigit():
        return []
    sockets = []
    for number in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(given[1])):
        try:
            os.set_inheritable(number, False)
            sock = socket.socket(fileno=number)
        except OSError as error:
            raise ConfigError(f"LISTEN_FDS = {given[1]}: descriptor {number}: {error.strerror}") from error
        if sock.family not in (socket.AF_INET, socket.AF_INET6) or not listens(sock):
            raise ConfigError(f"LISTEN_FDS: descriptor {number} is no TCP socket that listens; use ListenStream=PORT")
        sockets.append(with_protocol(sock))
    return sockets


def with_protocol(sock: socket.socket) -> socket.socket:
    """Return the same socket with its protocol named: asyncio sets TCP_NODELAY on such sockets alone."""
    return socket.socket(sock.family, sock.type, socket.IPPROTO_TCP, fileno=sock.detach())


def _is_at(sock: socket.socket, address: Address) -> bool:
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    host, port = sock.getsockname()[:2]
    return bool(host == address[0] and address[1] in (0, port))
