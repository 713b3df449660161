"""An ordinary MCP server over HTTPS: `python office.py --cert FILE --key FILE --log FILE`.

It reads any file that it may read, and moves money whenever it is asked to. What it really did is in the log.
"""

from __future__ import annotations

import argparse
import json
import socket
from pathlib import Path

import uvicorn
from mcp.server import MCPServer
from mcp_types import ToolAnnotations


def make_server(log: Path) -> MCPServer:
    """Return a server whose tools append a line to `log`."""
    server = MCPServer("office", log_level="WARNING")

    def ran(tool: str) -> None:
        with log.open("a") as file:
            file.write(f"{tool}\n")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def read_file(path: str) -> str:
        """Read a file."""
        ran("read_file")
        return Path(path).read_text()

    @server.tool(annotations=ToolAnnotations(destructive_hint=True))
    def transfer_funds(amount: float, to: str) -> str:
        """Move money, which cannot be taken back."""
        ran("transfer_funds")
        return f"{amount:g} went to {to}"

    return server


def listening_socket(port: int) -> socket.socket:
    """Listen on a port of loopback, or on any where that one is taken."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return socket.create_server(("127.0.0.1", 0))


def main() -> None:
    """Serve on loopback, and print the port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--cert", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args()
    listening = listening_socket(options.port)
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
    app = make_server(options.log).streamable_http_app()
    config = uvicorn.Config(app, log_level="warning", ssl_certfile=options.cert, ssl_keyfile=options.key)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
