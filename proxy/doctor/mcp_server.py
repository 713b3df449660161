"""A small MCP server on loopback with one tool, which counts its calls: for `interlock doctor` alone."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

TOOL = "interlock_doctor"
VERSION = "2025-06-18"
MAX_BODY = 1 << 20
_METHOD_NOT_FOUND = -32601


class DoctorServer:
    """Serves until the block ends. `called_with` has the argument of each call that reached it."""

    def __init__(self) -> None:
        self.called_with: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._http.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}/mcp"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a message; None for one that has none."""
        if "id" not in message:
            return None
        made = {"jsonrpc": "2.0", "id": message["id"]}
        match message.get("method"):
            case "initialize":
                said = {"protocolVersion": VERSION, "capabilities": {"tools": {}}}
                return {**made, "result": {**said, "serverInfo": {"name": "interlock-doctor", "version": "1"}}}
            case "tools/call":
                self.called_with.append(str(message["params"]["arguments"]["mark"]))
                # As an error: after any other result the client asks for the list of tools.
                return {**made, "result": {"content": [{"type": "text", "text": "called"}], "isError": True}}
            case _:
                return {**made, "error": {"code": _METHOD_NOT_FOUND, "message": "no such method"}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 5

            def do_POST(self) -> None:
                body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), MAX_BODY))
                answer = server.answer(json.loads(body))
                self._reply(202 if answer is None else 200, b"" if answer is None else json.dumps(answer).encode())

            def do_GET(self) -> None:
                self._reply(405, b"")

            def do_DELETE(self) -> None:
                self._reply(405, b"")

            def _reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler
