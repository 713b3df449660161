"""Real servers on loopback that take notices: HTTP, and SMTP with and without TLS."""

from __future__ import annotations

import http.server
import socketserver
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.harness import Certificates
from tests.support.store_fixtures import store, where  # noqa: F401  fixtures


@dataclass
class Taken:
    """What a server took: each request's path, headers and body, or each mail's text."""

    port: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    """The statuses to answer with, in order; 200 after that."""


@pytest.fixture
def hook() -> Iterator[Taken]:
    """An HTTP server that takes notices."""
    taken = Taken()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            status = taken.answers.pop(0) if taken.answers else 200
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"http://127.0.0.1:{taken.port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        taken.port = server.server_address[1]
        yield from _served(server, taken)


@pytest.fixture
def mailbox(certificates: Certificates) -> Iterator[Taken]:
    """An SMTP server that takes mail, and encrypts where it is asked to."""
    taken = Taken()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.cert_file, certificates.key_file)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            secure = False
            self.say("220 test")
            while line := self.rfile.readline():
                word = line.split()[0].upper()
                if word == b"EHLO":
                    self.say("250-test\r\n250-STARTTLS\r\n250 AUTH PLAIN")
                elif word == b"STARTTLS":
                    self.say("220 go")
                    self.request = context.wrap_socket(self.request, server_side=True)
                    self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb")
                    secure = True
                elif word == b"AUTH":
                    taken.logins.append(line.decode().strip())
                    self.say("235 ok")
                elif word == b"DATA":
                    self.say("354 go")
                    lines = iter(self.rfile.readline, b".\r\n")
                    taken.mails.append(b"".join(lines).decode())
                    taken.encrypted.append(secure)
                    self.say("250 taken")
                elif word == b"QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 ok")

        def finish(self) -> None:
            super().finish()
            self.request.close()  # after STARTTLS another one than the server's

        def say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())
            self.wfile.flush()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        taken.port = server.server_address[1]
        yield from _served(server, taken)


def _served(server: socketserver.BaseServer, taken: Taken) -> Iterator[Taken]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield taken
    finally:
        server.shutdown()
        thread.join()
