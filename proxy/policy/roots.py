"""The folders that a policy names, and patterns that may reach into them. Pure, no I/O."""

from __future__ import annotations

from proxy.policy.paths import GLOB_MARKS, join_parts, search_endings


def read_root(root: str) -> str:
    """Give the form of a policy's own path that `under` compares with.

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


def glob_may_reach(pattern: str, root: str) -> bool:
    """Tell whether an absolute pattern (folded) may name something under `root` (folded)."""
    wanted = [p for p in root.split("/") if p]
    given = [p for p in pattern.split("/") if p]
    for i, part in enumerate(wanted):
        if i >= len(given):
            return False
        if given[i].startswith("**"):
            return True
        if not _component_may_match(given[i], part):
            return False
    return True


def search_may_reach(pattern: str, root: str) -> bool:
    """Tell whether a relative search (folded) names a part of `root` (folded).

    That it may start at `/`, where all it finds could be under `root`, does not count.
    """
    wanted = [p for p in root.split("/") if p]
    *folders, last = (p for p in pattern.split("/") if p)
    endings = tuple(f".{ending}" for ending in search_endings(last))
    return any(name in folders or name.endswith(endings) for name in wanted)


def _component_may_match(pattern: str, name: str) -> bool:
    marks = [i for i, c in enumerate(pattern) if c in GLOB_MARKS]
    if not marks:
        return pattern == name
    last = max(i for i, c in enumerate(pattern) if c in "*?]}[{")
    tail = pattern[last + 1 :]
    return name.startswith(pattern[: marks[0]]) and (not tail or name.endswith(tail))
