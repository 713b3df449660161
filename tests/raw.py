"""Raw sockets: bytes as crafted, segment by segment, through tunnels and TLS. Bounded in time."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

type Segment = bytes | float
"""What `send_raw` does next: send these bytes, or pause for so many seconds."""


@dataclass(frozen=True)
class Tls:
    """How a raw connection does TLS: whom it trusts, the name it sends (None: no SNI), what it offers."""

    ca_file: Path | None = None
    server_name: str | None = "127.0.0.1"
    alpn: tuple[str, ...] = ()

    def wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = False
        if self.ca_file is None:
            context.verify_mode = ssl.CERT_NONE
        if self.alpn:
            context.set_alpn_protocols(list(self.alpn))
        return context.wrap_socket(sock, server_hostname=self.server_name)


def send_raw(
    host: str,
    port: int,
    segments: Sequence[Segment],
    *,
    tls: Tls | None = None,
    connect: str | None = None,
    limit: float = 5.0,
    quiet: float = 0.4,
    half_close: bool = False,
) -> bytes:
    """Send `segments` over one connection and give everything that came back.

    With `connect` (host:port) a CONNECT tunnel is asked for first; a refusal of the
    tunnel is the answer. Reading ends when the peer closes, when a complete HTTP
    answer is followed by `quiet` seconds of silence, or after `limit` seconds.
    """
    deadline = time.monotonic() + limit
    with contextlib.closing(socket.create_connection((host, port), timeout=limit)) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if connect and (refusal := _open_tunnel(plain, connect, deadline)):
            return refusal
        try:
            sock = tls.wrap(plain) if tls else plain
        except (OSError, ssl.SSLError) as error:
            return f"TLS failed: {error}".encode()
        with contextlib.closing(sock):
            _send_segments(sock, segments)
            if half_close and sock is plain:
                plain.shutdown(socket.SHUT_WR)
            return _receive(sock, deadline, quiet)


def _open_tunnel(sock: socket.socket, target: str, deadline: float) -> bytes:
    """Ask for a tunnel; give nothing where it opened, else the refusal."""
    sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        sock.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            chunk = sock.recv(1)
        except OSError:
            chunk = b""
        if not chunk:
            return answer or b"tunnel closed"
        answer += chunk
    return b"" if answer.split(b" ", 2)[1:2] == [b"200"] else answer


def _send_segments(sock: socket.socket, segments: Sequence[Segment]) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
        for segment in segments:
            if isinstance(segment, bytes):
                sock.sendall(segment)
            else:
                time.sleep(segment)


def _receive(sock: socket.socket, deadline: float, quiet: float) -> bytes:
    answer = b""
    while (left := deadline - time.monotonic()) > 0:
        sock.settimeout(min(left, quiet) if answer_is_complete(answer) else left)
        try:
            chunk = sock.recv(65536)
        except (OSError, ssl.SSLError):
            break
        if not chunk:
            break
        answer += chunk
    return answer


def answer_is_complete(answer: bytes) -> bool:
    """Whether `answer` holds at least one whole HTTP/1 response with a final status."""
    head, separator, rest = answer.partition(b"\r\n\r\n")
    if not separator:
        return False
    if head.split(b" ", 2)[1:2] == [b"100"]:
        return answer_is_complete(rest)
    headers = head.lower()
    if b"transfer-encoding: chunked" in headers:
        return rest.endswith(b"0\r\n\r\n")
    _, found, length = headers.partition(b"content-length:")
    return len(rest) >= int(length.split(b"\r\n")[0]) if found else b" 204 " in head or b" 202 " in head
