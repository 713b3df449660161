"""The Python SDK's server over stdio, for measuring: `echo` touches nothing, `read_many` reads files of a folder."""

from __future__ import annotations

from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("files")


@server.tool()
def echo(text: str) -> str:
    """Return the text back."""
    return text


@server.tool()
def read_many(folder: str, count: int) -> int:
    """Read the first files of a folder; return how many bytes they hold."""
    return sum(len(path.read_bytes()) for path in sorted(Path(folder).iterdir())[:count])


if __name__ == "__main__":
    server.run("stdio")
