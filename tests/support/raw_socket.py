"""Raw sockets: bytes as crafted, segment by segment, through tunnels and TLS. Bounded in time."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.timeouts import PATIENCE

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
    limit: float = PATIENCE,
    answers: int = 1,
    half_close: bool = False,
    first: Sequence[bytes] = (),
) -> bytes:
    """Send `segments` over one connection and give everything that came back.

    With `connect` (host:port) a CONNECT tunnel is asked for first; a refusal of the
    tunnel is the answer. Reading ends when the peer closes, when `answers` complete
    HTTP/1 answers have come, or after `limit` seconds. Each request in `first` is sent
    before, one after the other; their answers are dropped.
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
            for request in first:
                _send_segments(sock, [request])
                _receive(sock, deadline, 1)
            _send_segments(sock, segments)
            if half_close and sock is plain:
                plain.shutdown(socket.SHUT_WR)
            return _receive(sock, deadline, answers)


def _open_tunnel(sock: socket.socket, target: str, deadline: float) -> bytes:
    """Ask for a tunnel; return nothing where it opened, else the refusal."""
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


def _receive(sock: socket.socket, deadline: float, answers: int) -> bytes:
    received = b""
    while (left := deadline - time.monotonic()) > 0 and len(parse_answers(received, ended=False)) < answers:
        sock.settimeout(left)
        try:
            chunk = sock.recv(65536)
        except (OSError, ssl.SSLError):
            break
        if not chunk:
            break
        received += chunk
    return received


@dataclass(frozen=True)
class Answer:
    """One complete HTTP/1 answer."""

    status: int
    headers: dict[str, str]
    body: bytes


def parse_answers(received: bytes, *, ended: bool = True) -> list[Answer]:
    """Return the complete answers with a final status in `received`; what is cut short is left out.

    A body without a length is complete when the connection has `ended`; what follows an
    upgrade counts as an answer of status 0.
    """
    answers: list[Answer] = []
    while b"\r\n\r\n" in received:
        head, _, rest = received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split(" ")[1]) if first.startswith("HTTP/") else 0
        if 100 <= status < 200:
            received = rest
            if status == 101:
                answers += [Answer(status, headers, b""), *([Answer(0, {}, rest)] if rest else [])]
                break
            continue
        taken = _take_body(status, headers, rest, ended=ended)
        if taken is None:
            break
        body, received = taken
        answers.append(Answer(status, headers, body))
    return answers


def _take_body(status: int, headers: dict[str, str], rest: bytes, *, ended: bool) -> tuple[bytes, bytes] | None:
    """Split `rest` into an answer's body and what follows; None where the body is not all there."""
    if "chunked" in headers.get("transfer-encoding", ""):
        return _take_chunks(rest)
    if (length := headers.get("content-length")) is not None:
        size = int(length)
        return (rest[:size], rest[size:]) if len(rest) >= size else None
    if status in {202, 204, 304}:
        return b"", rest
    return (rest, b"") if ended else None


def _take_chunks(rest: bytes) -> tuple[bytes, bytes] | None:
    body = b""
    while b"\r\n" in rest:
        line, _, rest = rest.partition(b"\r\n")
        size = int(line.split(b";")[0], 16)
        if len(rest) < size + 2:
            return None
        body, rest = body + rest[:size], rest[size + 2 :]
        if not size:
            return body, rest
    return None
