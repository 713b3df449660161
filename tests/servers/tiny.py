"""A stdio MCP server in the standard library alone: it starts at once, and does nothing that a tool did not ask for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


class Tiny:
    """Tools by name, each a function of its arguments that gives text."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tools: dict[str, tuple[dict[str, Any], Callable[..., str]]] = {}

    def tool(
        self,
        description: str,
        properties: dict[str, Any] | None = None,
        annotations: dict[str, Any] | None = None,
        name: str | None = None,
    ) -> Callable[[Callable[..., str]], Callable[..., str]]:
        def add(work: Callable[..., str]) -> Callable[..., str]:
            schema = {"type": "object", "properties": properties or {}, "required": list(properties or {})}
            said = {"name": name or work.__name__, "description": description, "inputSchema": schema}
            self.tools[said["name"]] = (said | ({"annotations": annotations} if annotations else {}), work)
            return work

        return add

    def run(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            if "id" in message and "method" in message:
                answer = self._answer(message["method"], message.get("params") or {})
                sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
                sys.stdout.flush()

    def _answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            info = {"name": self.name, "version": "1.0"}
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
        if method == "tools/list":
            return {"result": {"tools": [said for said, _ in self.tools.values()]}}
        if method == "tools/call":
            return {"result": self._call(params["name"], params.get("arguments") or {})}
        return {"error": {"code": -32601, "message": f"no method {method}"}}

    def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"content": [{"type": "text", "text": self.tools[name][1](**arguments)}], "isError": False}
        except Exception as error:  # noqa: BLE001  a tool's error is its answer
            return {"content": [{"type": "text", "text": repr(error)}], "isError": True}
