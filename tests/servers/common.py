"""What the Python test servers share: their command line, their execution log, their tools."""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from starlette.types import ASGIApp


@dataclass(frozen=True)
class Options:
    """The command line every test server understands."""

    port: int
    log: Path
    stateless: bool
    json: bool
    tls_cert: str | None
    tls_key: str | None
    resumable: bool
    ping: float | None
    requests: Path | None
    host: str


def parse_options(argv: list[str] | None = None) -> Options:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, required=True, help="one JSON line per executed tool")
    parser.add_argument("--stateless", action="store_true")
    parser.add_argument("--json", action="store_true", help="answer with JSON, not SSE")
    parser.add_argument("--tls-cert")
    parser.add_argument("--tls-key")
    parser.add_argument("--resumable", action="store_true", help="keep events for Last-Event-ID")
    parser.add_argument("--ping", type=float, help="seconds between SSE keep-alive comments")
    parser.add_argument("--requests", type=Path, help="one JSON line per HTTP request (lenient and web only)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    return Options(**vars(parser.parse_args(argv)))


class ExecutionLog:
    """Appends one JSON line per executed tool; each line is on disk before the tool answers."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._wake = path.with_suffix(".wake")

    def executed(self, tool: str, arguments: Any) -> None:
        line = json.dumps({"tool": tool, "arguments": arguments}, default=repr)
        self._file.write(line.encode("ascii") + b"\n")

    async def sleep(self, seconds: float) -> None:
        """Sleep for so long, or until a test has had enough of it and touches the file beside the log."""
        end, before = asyncio.get_running_loop().time() + seconds, self._woken()
        while (left := end - asyncio.get_running_loop().time()) > 0 and self._woken() == before:
            await asyncio.sleep(min(left, 0.02))

    def _woken(self) -> int:
        return self._wake.stat().st_mtime_ns if self._wake.exists() else 0


def listening_socket(port: int, host: str = "127.0.0.1") -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    sock.listen(128)
    return sock


def announce(sock: socket.socket) -> None:
    """Tell whoever started this process where it listens."""
    sys.stdout.write(json.dumps({"port": sock.getsockname()[1]}) + "\n")
    sys.stdout.flush()


class _AnnouncingServer(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        assert sockets
        announce(sockets[0])


def serve(app: ASGIApp, options: Options) -> None:
    """Serve `app` on loopback until the process is told to end."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
        timeout_graceful_shutdown=1,
    )
    _AnnouncingServer(config).run(sockets=[listening_socket(options.port, options.host)])


def make_server(log: ExecutionLog) -> MCPServer:
    """Return a server with the tools that every test server has."""
    # Its tracebacks of malformed requests are painted by rich: many times the work of the request.
    server = MCPServer("interlock-test-python", log_level="CRITICAL")

    @server.tool()
    def echo(text: str) -> str:
        """Return the text back."""
        log.executed("echo", {"text": text})
        return text

    @server.tool()
    def read_file(path: str) -> str:
        """Pretend to read a file."""
        log.executed("read_file", {"path": path})
        return f"contents of {path}"

    @server.tool()
    def danger(note: Any = None) -> str:
        """Do what no policy in these tests allows."""
        log.executed("danger", {"note": note})
        return "done"

    @server.tool()
    def structured(n: int) -> dict[str, int]:
        """Return a structured result."""
        log.executed("structured", {"n": n})
        return {"n": n}

    @server.tool()
    async def slow(ms: int, ctx: Context) -> str:
        """Report progress at once, answer after `ms` milliseconds or when woken."""
        log.executed("slow", {"ms": ms})
        await ctx.report_progress(0, 1, "started")
        await log.sleep(ms / 1000)
        return f"slept {ms} ms"

    return server
