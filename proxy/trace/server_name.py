"""Names a server by its command line. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Programs that run a package, and the words between them and its name.
PACKAGE_RUNNERS: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("npx", "bunx", "uvx"), ((),)),
    **dict.fromkeys(("pipx", "deno"), (("run",),)),
    **dict.fromkeys(("pnpm", "yarn"), (("dlx",),)),
    "npm": (("exec",), ("x",)),
    "bun": (("x",), ("run",)),
    "uv": (("tool", "run"), ("run",)),
}
INTERPRETERS = re.compile(r"(python|pypy)[0-9.]*|node|ruby|perl|tsx|ts-node")
# Options of any of those that take the next word as their value.
WITH_VALUE = {"-p", "--package", "--from", "--with", "--python", "--directory", "--project", "-r", "--require"}
_VERSION = re.compile(r"(?<=.)(@|==).*", re.DOTALL)


def server_name(command: Sequence[str]) -> str:
    """Return the name of the server that `command` starts: its package, its script or its program."""
    program, rest = _base(command[0]), list(command[1:])
    for words in PACKAGE_RUNNERS.get(program, ()):
        if tuple(rest[: len(words)]) == words:
            package = _first_word(rest[len(words) :])
            name = _VERSION.sub("", package or program)
            return name if name.startswith("@") else _base(name)  # `@scope/name` is a package, no path
    if INTERPRETERS.fullmatch(program):
        return _script(rest) or program
    return program


def without_version(word: str) -> str:
    """Return a package's name without its version; other words as they are."""
    return word if "/" in word.lstrip("@").partition("/")[2] or ":" in word else _VERSION.sub("", word)


def _script(arguments: list[str]) -> str | None:
    if not {"-c", "-e", "--eval"}.isdisjoint(arguments[:2]):
        return None
    if "-m" in arguments[:-1]:
        return arguments[arguments.index("-m") + 1]
    word = _first_word(arguments)
    return _base(word).rpartition(".")[0] or _base(word) if word else None


def _first_word(arguments: list[str]) -> str | None:
    """Return the first argument that is no option and no option's value."""
    words = iter(arguments)
    for word in words:
        if word in WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path
