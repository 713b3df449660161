"""Sockets of the operators' side: one in the state folder, which may be deeper than a socket's path, and TCP."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

BACKLOG = 64


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Give a short name for `path` while the block lasts: a socket's may have 107 bytes at most."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen_unix(path: Path) -> socket.socket:
    """Listen at `path`, in place of whatever was there, for its owner alone.

    Made in a private folder and moved into place, so that there is no moment in
    which others could connect.
    """
    private = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
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


def connect_unix(path: Path, timeout: float) -> socket.socket:
    """Connect to the socket at `path`. Raises OSError where nobody listens."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        with _short(path) as name:
            sock.connect(name)
    except BaseException:
        sock.close()
        raise
    return sock


def listen_tcp(host: str, port: int) -> socket.socket:
    """Listen on a TCP address.

    Raises ConfigError where that cannot be done.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"setting operator_listen = '{host}:{port}': {error.strerror or error}; "
            "stop what uses that address, choose another, or leave the setting out"
        ) from error
