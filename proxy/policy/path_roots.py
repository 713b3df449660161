"""The folders that a policy names, and patterns that may reach into them. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.policy.paths import GLOB_MARKS, join_parts, search_endings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def read_root(root: str) -> str:
    """Return the form of a policy's own path that `under` compares with.

    A root is taken as written; only separators, `.` and `..` are resolved.
    Relative roots (`.`, `src`) speak of paths relative to the server's directory.
    """
    slashed = root.replace("\\", "/")
    walk = _walk_plain(slashed)
    return walk if walk.startswith("/") or walk == "./" else "./" + walk


def _walk_plain(text: str) -> str:
    drive = text[1:2] == ":"
    parts: list[str] = []
    for part in text.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    if drive:
        parts[0] = parts[0][0].upper() + ":"
    if drive or text.startswith("/"):
        return join_parts(tuple(parts))
    return join_parts(tuple(parts))[1:] or "./"


def reach_of(globs: Iterable[str], searches: Iterable[str]) -> Callable[[str], bool]:
    """Return the test whether one of these patterns (folded) may name something under a root (folded)."""
    absolute = [_parts(pattern) for pattern in globs]
    relative = [_parts(pattern) for pattern in searches]

    def may_reach(root: str) -> bool:
        wanted = _parts(root)
        return any(_glob_may_reach(given, wanted) for given in absolute) or any(
            _search_may_reach(given, wanted) for given in relative
        )

    return may_reach


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _glob_may_reach(given: list[str], wanted: list[str]) -> bool:
    """Return whether an absolute pattern may name something under a root."""
    for i, part in enumerate(wanted):
        if i >= len(given):
            return False
        if given[i].startswith("**"):
            return True
        if not _component_may_match(given[i], part):
            return False
    return True


def _search_may_reach(given: list[str], wanted: list[str]) -> bool:
    """Return whether a relative search names a part of a root.

    That it may start at `/`, where all it finds could be under the root, does not count.
    """
    *folders, last = given
    endings = tuple(f".{ending}" for ending in search_endings(last))
    return any(name in folders or name.endswith(endings) for name in wanted)


def _component_may_match(pattern: str, name: str) -> bool:
    marks = [i for i, c in enumerate(pattern) if c in GLOB_MARKS]
    if not marks:
        return pattern == name
    last = max(i for i, c in enumerate(pattern) if c in "*?]}[{")
    tail = pattern[last + 1 :]
    return name.startswith(pattern[: marks[0]]) and (not tail or name.endswith(tail))
