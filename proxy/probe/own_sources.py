"""Finds a server's own source among the files that it opened: no library's, and bounded."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from typing import TYPE_CHECKING

from proxy.trace.server_name import server_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SOURCES = (".py", ".js", ".mjs", ".cjs", ".ts")
MAX_FILES = 60
MAX_BYTES = 1 << 18
_LIBRARY = re.compile(r"/(?:site-packages|dist-packages|node_modules)/((?:@[^/]+/)?[^/]+)")
_RUNTIME = re.compile(r"/lib(?:64)?/python[0-9.]+/(?!.*(?:site|dist)-packages/)|/usr/(?:share|lib)/node")
_COMPILED = re.compile(r"/__pycache__/([^/]+?)\.[^/]*\.pyc$")


def own_sources(opened: Iterable[str], command: Sequence[str]) -> tuple[str, ...]:
    """Return the text of the files of source among `opened` that belong to the server which `command` starts."""
    paths = dict.fromkeys(_COMPILED.sub(r"/\1.py", path) for path in opened)
    mine = [path for path in paths if path.endswith(SOURCES) and _is_own(path, command)]
    # Its last files are the innermost: what starts a server comes first, and has no words of interest.
    texts = (_read(path) for path in mine[-MAX_FILES:])
    return tuple(text for text in texts if text is not None)


def _is_own(path: str, command: Sequence[str]) -> bool:
    if _RUNTIME.search(path):
        return False
    package = next(reversed(list(_packages(path))), None)
    if package is None:
        return True
    # Of installed packages one is the server: by its name, or because its file is what was started.
    folder = path[: path.rindex(f"/{package}/") + len(package) + 2] if f"/{package}/" in path else path
    started = any(posixpath.realpath(word).startswith(folder) for word in command if "/" in word)
    return started or _plain(package.removesuffix(".py")) == _plain(server_name(command))


def _packages(path: str) -> Iterator[str]:
    return (found[1] for found in _LIBRARY.finditer(path))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(path: str) -> str | None:
    """Return a file's text; None for what is no plain file, or cannot be read. It is read where the server read it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return os.pread(handle, MAX_BYTES, 0).decode("utf-8", "replace")
    finally:
        os.close(handle)
