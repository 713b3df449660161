"""Serves one sample of a bad tool over stdio: `python scripts/serve_sample.py FILE`. The standard library alone.

Collections of bad tools are written for readers, not to be run: they import a `FastMCP` from where no SDK has it, and
start nothing. This stands in for it, so that they do what they say.
"""

from __future__ import annotations

import inspect
import json
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
TOOLS: dict[str, Callable[..., Any]] = {}


class FastMCP:
    """Collects tools."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def tool(self, *names: Any, **named: Any) -> Callable[..., Any]:
        """Take a function as a tool, with or without brackets."""

        def take(work: Callable[..., Any]) -> Callable[..., Any]:
            TOOLS[str(named.get("name") or work.__name__)] = work
            return work

        return take(names[0]) if names and callable(names[0]) else take

    def __getattr__(self, _: str) -> Callable[..., Any]:
        """Stand in for everything else: resources, prompts, and starting."""
        return lambda *_, **__: lambda work: work


def schema(work: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON Schema of a function's parameters."""
    try:
        hints = get_type_hints(work)
    except NameError:
        hints = {}
    properties, required = {}, []
    for name, parameter in inspect.signature(work).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        hint = hints.get(name, str)
        properties[name] = {"type": TYPES.get(getattr(hint, "__origin__", hint), "string")}
        if parameter.default is parameter.empty:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def taken(work: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments as an SDK hands them over: text as bytes, where a tool takes bytes."""
    hints = getattr(work, "__annotations__", {})
    return {
        name: value.encode("latin-1", "replace") if hints.get(name) in (bytes, "bytes") else value
        for name, value in arguments.items()
    }


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request, or its error."""
    if method == "initialize":
        info = {"name": "sample", "version": "1"}
        return {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        found = [
            {"name": n, "description": inspect.getdoc(w) or "", "inputSchema": schema(w)} for n, w in TOOLS.items()
        ]
        return {"result": {"tools": found}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": f"no method {method}"}}
    try:
        work = TOOLS[params["name"]]
        text, failed = str(work(**taken(work, params.get("arguments") or {}))), False
    except BaseException as error:  # noqa: BLE001  a sample may even exit
        text, failed = repr(error), True
    return {"result": {"content": [{"type": "text", "text": text}], "isError": failed}}


def main() -> None:
    """Load the sample and serve it until there are no more lines."""
    stand_in: Any = types.ModuleType("mcp")
    stand_in.FastMCP = FastMCP
    sys.modules["mcp"] = stand_in
    source = Path(sys.argv[1])
    out, sys.stdout = sys.stdout, sys.stderr  # what a sample prints is no message
    exec(compile(source.read_text(), str(source), "exec"), {"__name__": "sample", "__file__": str(source)})  # noqa: S102
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            found = {"jsonrpc": "2.0", "id": message["id"], **answer(message["method"], message.get("params") or {})}
            out.write(json.dumps(found, default=str) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
