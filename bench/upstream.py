"""A server that costs next to nothing: `python -m bench.upstream PORT [CERTIFICATE KEY]`.

It answers POSTs with the payloads, as nginx does where there is one, and at /mcp it speaks as much MCP as
gateways need that open sessions of their own. Standard library, with uvloop where it is installed.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
from typing import Any, cast

from bench.payloads import ANSWERS, DOWNLOAD_MB, TOOL, TYPES, answer, text_of

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNK = bytes(1 << 16)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TEXT = text_of(310)


def head(media_type: str, length: int | None, status: str = "200 OK", more: str = "") -> bytes:
    """Spell the head of an answer."""
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    return f"HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\n{more}{size}\r\n\r\n".encode()


def _ready(path: str, body: bytes) -> bytes:
    kind = path.rpartition(".")[2]
    if kind == "sse":  # its length is not known beforehand, as with a real stream
        return head(TYPES[kind], None) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    return head(TYPES[kind], len(body)) + body


READY = {path.encode(): _ready(path, body) for path, body in ANSWERS.items()}


def speak(message: dict[str, Any]) -> bytes:
    """Answer a message of a session."""
    if "id" not in message:
        return head("text/plain", 0, "202 Accepted")
    if message.get("method") == "tools/call":
        body = answer(TEXT, message["id"])
        return head("application/json", len(body)) + body
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "bench", "version": "1"},
        },
        "tools/list": {"tools": [{"name": TOOL, "description": "Search files.", "inputSchema": SCHEMA}]},
        "ping": {},
    }
    found = results.get(str(message.get("method")))
    said = {"error": {"code": -32601, "message": "Method not found"}} if found is None else {"result": found}
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}).encode()
    session = "mcp-session-id: bench-session\r\n" if message.get("method") == "initialize" else ""
    return head("application/json", len(body), more=session) + body


class Upstream(asyncio.Protocol):
    """One connection."""

    served = 0

    def __init__(self) -> None:
        self._buffer = b""
        self._resume = asyncio.Event()
        self._resume.set()
        self._sending: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by class

    def data_received(self, data: bytes) -> None:
        """Answer each request that is whole."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            top = self._buffer[:end]
            found = LENGTH.search(top)
            length = int(found[1]) if found else 0
            if len(self._buffer) < end + 4 + length:
                return
            body, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
            method, path = top.split(b" ", 2)[:2]
            self._answer(method, path, body)

    def _answer(self, method: bytes, path: bytes, body: bytes) -> None:
        if (ready := READY.get(path)) is not None:
            Upstream.served += 1
            self._transport.write(ready)
        elif path == b"/count":
            said = b"%d" % Upstream.served
            self._transport.write(head("text/plain", len(said)) + said)
        elif path == b"/download.bin":
            Upstream.served += 1
            self._sending = asyncio.ensure_future(self._download())
        elif method == b"POST":
            Upstream.served += 1
            self._transport.write(speak(json.loads(body)))
        else:
            self._transport.write(head("text/plain", 0, "405 Method Not Allowed"))

    async def _download(self) -> None:
        self._transport.write(head("application/octet-stream", DOWNLOAD_MB * 1_000_000))
        left = DOWNLOAD_MB * 1_000_000
        while left and not self._transport.is_closing():
            await self._resume.wait()
            self._transport.write(CHUNK[: min(left, len(CHUNK))])
            left -= min(left, len(CHUNK))

    def pause_writing(self) -> None:
        self._resume.clear()

    def resume_writing(self) -> None:
        self._resume.set()


async def serve(port: int, certificate: list[str]) -> None:
    """Serve until ended."""
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", port, ssl=context, backlog=1024)
    await server.serve_forever()


def main() -> None:
    """Serve on the port named, fast where uvloop is there."""
    try:
        import uvloop  # noqa: PLC0415

        run = uvloop.run
    except ImportError:
        run = asyncio.run
    run(serve(int(sys.argv[1]), sys.argv[2:]))


if __name__ == "__main__":
    main()
