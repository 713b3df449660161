"""The admin API's sockets: a unix socket in the state folder, and TCP where it is configured."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from proxy.errors import ConfigError
from proxy.system.handed_sockets import HandedSockets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BACKLOG = 64
SOCKET = "operator.sock"  # in the state folder

log = structlog.get_logger("interlock.operators")


class Listeners:
    """The admin API's listening sockets. Opened before the fork; every worker accepts from them."""

    def __init__(
        self, state_dir: Path, listen: tuple[str, int] | None = None, handed: HandedSockets | None = None
    ) -> None:
        """Listen, with the sockets that were handed on where they fit. Raises ConfigError if it cannot."""
        handed = handed or HandedSockets()
        self.path = state_dir / SOCKET
        self.host = listen[0] if listen is not None else ""
        self.handed_on = False  # whether another process serves `path` now
        self.tcp = None if listen is None else handed.take("operator_tcp", listen) or listen_tcp(*listen)
        if self.tcp is not None and not ipaddress.ip_address(self.addresses[0][0]).is_loopback:
            log.warning("the admin API is reachable from other machines, without TLS", listen=self.addresses[0])
        self.unix = handed.take("operator") or listen_unix(self.path)

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        return () if self.tcp is None else (self.tcp.getsockname()[:2],)

    def close(self) -> None:
        self.unix.close()
        if self.tcp is not None:
            self.tcp.close()
        if not self.handed_on:
            self.path.unlink(missing_ok=True)


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a short name for `path`: a socket's may have 107 bytes, and a state folder may lie deeper."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen_unix(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """Listen at `path` for its owner only, and replace what is there."""
    # Bound in a private folder, restricted, then moved: bind uses the umask's mode, and before chmod another user could
    # connect.
    private = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        with _short(private / path.name) as name:
            sock.bind(name)
        (private / path.name).chmod(0o600)
        sock.listen(BACKLOG)
        os.replace(private / path.name, path)
    except BaseException:
        sock.close()
        raise
    finally:
        shutil.rmtree(private)
    return sock


def connect_unix(path: Path, timeout: float, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """Connect to the socket at `path`. Raises OSError if nobody listens."""
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        sock.settimeout(timeout)
        with _short(path) as name:
            sock.connect(name)
    except BaseException:
        sock.close()
        raise
    return sock


def listen_tcp(host: str, port: int) -> socket.socket:
    """Listen on a TCP address. Raises ConfigError if it cannot."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"setting operator_listen = '{host}:{port}': {error.strerror or error}; "
            "stop what uses that address, choose another, or leave the setting out"
        ) from error
