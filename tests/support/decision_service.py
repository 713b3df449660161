"""A service that policy asks, on loopback: it speaks OPA's data API or Cedar's, and can be told to misbehave."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.loopback import serve


@dataclass
class DecisionService:
    """`decide` returns the answer to a question; `raw`, where it is set, is what is sent in its place."""

    url: str = ""
    decide: Callable[[Any], Any] = lambda _asked: {"result": True}
    status: int = 200
    raw: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    peers: set[Any] = field(default_factory=set)
    held: threading.Event | None = None


def _handler(service: DecisionService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            service.asked.append(asked)
            service.paths.append(self.path)
            service.peers.add(self.client_address)
            if service.held is not None:
                service.held.wait(20)
            body = service.raw if service.raw is not None else json.dumps(service.decide(asked)).encode()
            with contextlib.suppress(OSError):
                self.send_response(service.status)
                for name, value in service.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def start_service() -> Iterator[DecisionService]:
    service = DecisionService()
    with serve(_handler(service)) as service.url:
        try:
            yield service
        finally:
            if service.held is not None:
                service.held.set()
