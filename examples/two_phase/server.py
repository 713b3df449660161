"""Ten tools of mixed risk, which only say that they ran: `python server.py --stdio`, or `--port 0` for HTTP.

`--log FILE` writes down what ran.
"""

from __future__ import annotations

import argparse
import json
import socket
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp_types import ToolAnnotations

READS = ToolAnnotations(read_only_hint=True)
ADDS = ToolAnnotations(destructive_hint=False)
DESTROYS = ToolAnnotations(destructive_hint=True)


def make_server(log: Path | None) -> MCPServer:  # noqa: C901  ten tools are ten branches
    """Return a server whose tools append a line to `log`, if there is one."""
    server = MCPServer("ten-tools", log_level="WARNING")

    def ran(tool: str, **arguments: Any) -> str:
        if log is not None:
            with log.open("a") as file:
                file.write(json.dumps({"tool": tool, "arguments": arguments}) + "\n")
        return f"{tool} ran"

    @server.tool(annotations=READS)
    def list_files(folder: str) -> str:
        """List a folder."""
        return ran("list_files", folder=folder)

    @server.tool(annotations=READS)
    def read_file(path: str) -> str:
        """Read a file."""
        return ran("read_file", path=path)

    @server.tool(annotations=READS)
    def search_web(query: str) -> str:
        """Search the web."""
        return ran("search_web", query=query)

    @server.tool(annotations=ADDS)
    def create_note(text: str) -> str:
        """Write a note."""
        return ran("create_note", text=text)

    @server.tool(annotations=DESTROYS)
    def send_email(to: str, text: str) -> str:
        """Send a mail, which cannot be taken back."""
        return ran("send_email", to=to, text=text)

    @server.tool(annotations=DESTROYS)
    def delete_file(path: str) -> str:
        """Delete a file."""
        return ran("delete_file", path=path)

    @server.tool(annotations=DESTROYS)
    def transfer_funds(amount: float, to: str) -> str:
        """Move money."""
        return ran("transfer_funds", amount=amount, to=to)

    @server.tool(annotations=DESTROYS)
    def deploy_service(service: str, version: int) -> str:
        """Replace what runs."""
        return ran("deploy_service", service=service, version=version)

    @server.tool(annotations=DESTROYS)
    def rotate_password(user: str) -> str:
        """Make the old password useless."""
        return ran("rotate_password", user=user)

    @server.tool(annotations=DESTROYS)
    def drop_table(database: str, table: str) -> str:
        """Drop a table."""
        return ran("drop_table", database=database, table=table)

    return server


def main() -> None:
    """Serve on stdin and stdout, or on loopback and print the port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stdio", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path)
    options = parser.parse_args()
    server = make_server(options.log)
    if options.stdio:
        server.run("stdio")
        return
    listening = socket.create_server(("127.0.0.1", options.port))
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
