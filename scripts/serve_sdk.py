"""Serves a file's MCP server over stdio, whatever it does by itself: `python scripts/serve_sdk.py FILE`.

Vulnerable servers to practise on are written to be started at a port, or by a framework around them, and for one
version of the SDK. This loads one with the SDK that it imports, leaves out arguments that the SDK does not know, and
serves what the file has.
"""

from __future__ import annotations

import functools
import inspect
import runpy
import sys
from pathlib import Path
from typing import Any

from mcp.server import fastmcp as sdk  # type: ignore[import-not-found]  # of the interpreter that serves, not ours

NAMES = ("combined_server", "mcp", "app", "server")


def lenient(work: Any) -> Any:
    """Return a function that leaves out named arguments which the given one does not take."""
    known = inspect.signature(work).parameters

    @functools.wraps(work)
    def call(*values: Any, **named: Any) -> Any:
        return work(*values, **{name: value for name, value in named.items() if name in known})

    return call


def main() -> None:
    """Load the file and serve what it has."""
    path = Path(sys.argv[1]).resolve()
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    for name in ("__init__", "tool", "resource", "prompt"):
        setattr(sdk.FastMCP, name, lenient(getattr(sdk.FastMCP, name)))
    found = runpy.run_path(str(path), run_name="served")
    named = [found[name] for name in NAMES if name in found]
    for each in [*named, *found.values()]:
        if hasattr(each, "run") and hasattr(each, "tool") and not isinstance(each, type):
            each.run("stdio")
            return
    raise SystemExit(f"{path.name} has no server")


if __name__ == "__main__":
    main()
