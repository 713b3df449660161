"""Servers that answer every connection with the same bytes, whatever they are asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.support.timeouts import PATIENCE


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Return the host and port of a server that sends `answer` once a request has come, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, answer))
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)


def _serve(listener: socket.socket, answer: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(PATIENCE)
                connection.recv(65536)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(65536)
