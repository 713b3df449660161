"""Serves a file's MCP server over stdio, whatever it does by itself: `python scripts/serve_sdk.py FILE`.

Vulnerable servers to practise on are written to be started at a port, or by a framework around them. This loads one
with the SDK that it imports, as a module, and serves the first server that it has, or the one that is named last.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

NAMES = ("combined_server", "mcp", "app", "server")


def main() -> None:
    """Load the file and serve what it has."""
    path = Path(sys.argv[1]).resolve()
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    found = runpy.run_path(str(path), run_name="served")
    for name in NAMES:
        if hasattr(found.get(name), "run"):
            found[name].run("stdio")
            return
    raise SystemExit(f"{path.name} has no server named {', '.join(NAMES)}")


if __name__ == "__main__":
    main()
