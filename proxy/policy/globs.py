"""Globs over names of servers, tools, agents and methods. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.policy.regex import compile_search, escape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MARKS = frozenset("*?[")


def is_glob(pattern: str) -> bool:
    return not _MARKS.isdisjoint(pattern)


def compile_globs(patterns: Sequence[str] | None) -> Callable[[str], bool]:
    """Return the test whether a name fits one of `patterns`; None fits every name."""
    if patterns is None or "*" in patterns:
        return lambda _name: True
    plain = frozenset(p for p in patterns if not is_glob(p))
    globs = [p for p in patterns if is_glob(p)]
    if not globs:
        return plain.__contains__
    search = compile_search("^(?s:" + "|".join(map(translate, globs)) + ")$")
    return lambda name: name in plain or search(name)


def translate(pattern: str) -> str:
    """Return the RE2 expression of a glob (`*`, `?`, `[abc]`, `[!abc]`)."""
    out: list[str] = []
    rest = pattern
    while rest:
        char, rest = rest[0], rest[1:]
        if char == "*":
            out.append(".*")
        elif char == "?":
            out.append(".")
        elif char == "[" and "]" in rest[1:]:
            end = rest.index("]", 1)
            negated = rest[0] in "!^"
            # RE2 gives \, [ and ^ a meaning inside brackets that a glob does not.
            members = rest[negated:end].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            out.append(f"[{'^' if negated else ''}{members}]")
            rest = rest[end + 1 :]
        else:
            out.append(escape(char))
    return "".join(out)
