"""The least that a stdio server can be: it answers each line at once, with the id that it came with."""

from __future__ import annotations

import json
import sys

from bench.payloads import TOOL, answer, text_of
from bench.upstream import SCHEMA

TEXT = text_of(310)


def main() -> None:
    """Answer until there are no more lines."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            continue
        if message["method"] == "tools/call":
            said = answer(TEXT, message["id"])
        else:
            said = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result(message)}).encode()
        sys.stdout.buffer.write(said + b"\n")
        sys.stdout.buffer.flush()


def result(message: dict[str, object]) -> dict[str, object]:
    """Return what is said to anything but a call."""
    if message["method"] == "initialize":
        info = {"name": "bench", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if message["method"] == "tools/list":
        return {"tools": [{"name": TOOL, "description": "Search files.", "inputSchema": SCHEMA}]}
    return {}


if __name__ == "__main__":
    main()
