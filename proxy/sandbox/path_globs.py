"""Globs over paths: `*` and `?` within a name, `**` over folders. Pure, no I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def translate(pattern: str) -> str:
    """Return the expression of a glob over whole paths; `folder/**` fits the folder too."""
    out: list[str] = []
    rest = pattern
    while rest:
        if rest.startswith("/**/"):
            out.append("/(?:[^/]+/)*")
            rest = rest[4:]
        elif rest == "/**":
            out.append("(?:/.*)?")
            rest = ""
        elif rest[0] == "*":
            out.append("[^/]*")
            rest = rest.lstrip("*")
        elif rest[0] == "?":
            out.append("[^/]")
            rest = rest[1:]
        elif rest[0] == "[" and "]" in rest[2:]:
            end = rest.index("]", 2)
            members = rest[1:end].replace("\\", "\\\\").replace("^", "\\^").replace("[", "\\[")
            out.append(f"[^{members[1:]}]" if members.startswith("!") else f"[{members}]")
            rest = rest[end + 1 :]
        else:
            out.append(re.escape(rest[0]))
            rest = rest[1:]
    return "".join(out)


def compile_path(pattern: str) -> Callable[[str], bool]:
    """Return the test whether an absolute path fits a glob, or lies below a folder that does."""
    if pattern.startswith("**/"):
        return compile_tail(pattern[3:])
    test = re.compile(f"{translate(pattern)}(?:/.*)?", re.DOTALL).fullmatch
    return lambda path: test(path) is not None


def compile_tail(pattern: str) -> Callable[[str], bool]:
    """Return the test whether a path ends with what a glob says, in any folder, or lies below such a folder."""
    test = re.compile(f"(?:.*/)?{translate(pattern)}(?:/.*)?", re.DOTALL).fullmatch
    return lambda path: test(path) is not None
