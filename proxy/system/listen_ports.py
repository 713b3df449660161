"""TCP ports that several workers share: the supervisor reserves them, each worker listens with a socket of its own.

With SO_REUSEPORT the kernel spreads new connections over all listening sockets, and drops a worker that dies at once. A
reserved socket is bound and never listens: it keeps the port, even one the kernel chose, while workers are replaced.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from proxy.errors import ConfigError
from proxy.system.handed_sockets import HandedSockets, listens, with_protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

BACKLOG: Final = 1024

type Address = tuple[str, int]


class ReservedPorts:
    """The addresses of one setting, reserved until `close`."""

    def __init__(
        self,
        setting: str,
        host: str,
        port: int,
        handed: HandedSockets | None = None,
        activated: Sequence[socket.socket] = (),
    ) -> None:
        """Reserve the addresses. Raises ConfigError if they are in use or not allowed.

        `handed` may have sockets of the proxy that this one replaces; `activated` are a service manager's, which count
        in place of the setting. All workers accept from those that listen.
        """
        handed = handed or HandedSockets()
        before = handed.take_all(setting)
        self._sockets: list[socket.socket] = [*activated, *(sock for sock in before if listens(sock))]
        self.addresses: list[Address] = [sock.getsockname()[:2] for sock in self._sockets]
        self.listening = tuple(self._sockets)
        reserved = HandedSockets((setting, sock) for sock in before if sock not in self._sockets)
        if not self._sockets:
            self._reserve(setting, host, port, reserved)
        reserved.close()

    def _reserve(self, setting: str, host: str, port: int, handed: HandedSockets) -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, address in dict.fromkeys((each[0], (str(each[4][0]), port)) for each in found):
                # A trial without SO_REUSEPORT: with it, two proxies of one user would silently share the port, and each
                # would get half of the agents' connections.
                chosen = port or (self.addresses[0][1] if self.addresses else 0)
                ours = handed.take(setting, (address[0], chosen))
                if ours is None and address[1]:
                    _bound(family, address, shared=False).close()
                self._sockets.append(ours or _bound(family, (address[0], chosen), shared=True))
                self.addresses.append(self._sockets[-1].getsockname()[:2])
        except OSError as error:
            handed.close()
            self.close()
            raise unusable(setting, host, port, error) from error

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """What holds the addresses, for whoever takes over."""
        return self._sockets

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


def listen_shared(address: Address) -> socket.socket:
    """Listen on a reserved address beside the other workers. Raises OSError."""
    sock = _bound(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, address, shared=True)
    try:
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def listen_as(addresses: Sequence[Address], inherited: Sequence[socket.socket]) -> list[socket.socket]:
    """Return a worker's listening sockets: those that it inherited, and new ones for the other addresses."""
    ours = [with_protocol(sock.dup()) for sock in inherited]
    covered = {sock.getsockname()[:2] for sock in ours}
    return [*ours, *(listen_shared(address) for address in addresses if tuple(address) not in covered)]


def unusable(setting: str, host: str, port: int, error: OSError) -> ConfigError:
    """Return the error for an address that cannot be listened on."""
    flag = f"--{setting.replace('_', '-')}"
    reason = (error.strerror or str(error)).partition("\n")[0]
    return ConfigError(
        f"setting {setting} = '{host}:{port}': {reason}; "
        f"stop what uses that address, or choose another, for example {flag} 127.0.0.1:0"
    )


def format_address(address: Sequence[str | int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def _bound(family: socket.AddressFamily, address: Address, *, shared: bool) -> socket.socket:
    # asyncio sets TCP_NODELAY only on sockets made with the protocol named; without it a call took 3.4 times as long.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        if family == socket.AF_INET6:
            # Without it [::]:8080 would take 0.0.0.0:8080 too, and the trial above would not see who has that.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock
