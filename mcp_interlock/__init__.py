"""Where the `interlock` command begins: checks that the package `proxy` is Interlock's own, and runs it.

Other distributions have a package of that name, such as `proxy.py`. In one environment, whichever was installed last
replaces files of the other; whatever comes first on the path hides the other. This package has a name of its own, so
that it can say so.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import NoReturn

EXIT_ERROR = 1
EXIT_BLOCK = 2
WAY_OUT = "install Interlock into an environment of its own, with `uv tool install` or `pipx install`"
MARK = "Interlock: a transparent HTTP/MCP interception proxy"


def main() -> None:
    """Run the command line, or say why it cannot be."""
    is_hook = sys.argv[1:3] == ["policy", "decide"]
    problem = shadowed()
    if problem is not None:
        sys.stderr.write(f"error: {problem}\n")
        # A client's hook blocks a call on this exit code alone.
        sys.exit(EXIT_BLOCK if is_hook else EXIT_ERROR)
    if is_hook:
        _answer_hook()
    from proxy.cli import main as run  # noqa: PLC0415  only what was checked is imported

    run()


def _answer_hook() -> NoReturn:
    """Run the command line for one call of a client's own tools, which waits for it."""
    # pydantic would read the metadata of every distribution to look for plugins.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    code: object = EXIT_BLOCK
    try:
        from proxy.cli import main as run  # noqa: PLC0415

        run()
    except SystemExit as ended:
        code = ended.code
    except Exception as error:  # noqa: BLE001  the one boundary: clients let a call pass on any other exit code than this
        sys.stderr.write(f"Interlock cannot decide on this call, so it is blocked: {error}\n")
    sys.stderr.flush()
    # All is written by now. To take the modules down one by one would be a twentieth of the whole.
    os._exit(EXIT_BLOCK if code else 0)


def shadowed() -> str | None:
    """Return what is wrong if `import proxy` would not give Interlock's package, else None."""
    ours = Path(__file__).resolve().parent.parent / "proxy"
    try:
        spec = importlib.util.find_spec("proxy")
        found = Path(spec.origin).resolve() if spec is not None and spec.origin is not None else None
        if found == ours / "__init__.py" and MARK in found.read_text("utf-8", "replace"):
            return None
    except (OSError, ValueError, ImportError):
        found = None
    if found is None or not (ours / "__init__.py").exists():
        return f"Interlock's package {ours} is not complete; perhaps another distribution took it along; {WAY_OUT}"
    return f"the package `proxy` in {found.parent} is not Interlock's but {_owner(found)}; {WAY_OUT}"


def _owner(origin: Path) -> str:
    """Return the distribution that a file belongs to, in words."""
    from importlib.metadata import distributions  # noqa: PLC0415  slow, and only for an error

    for distribution in distributions():
        name = str(distribution.metadata["Name"])
        files = distribution.files or ()
        if name != "mcp-interlock" and any(Path(str(file.locate())).resolve() == origin for file in files):
            return f"that of the distribution {name} {distribution.version}"
    return "another one's, of no installed distribution (see PYTHONPATH and the working directory)"
