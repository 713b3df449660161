"""Folders that cover the paths which were seen, and not much more. Pure."""

from __future__ import annotations

import posixpath
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# So many different children of a folder stand for the folder.
SEVERAL: Final = 3
MAX_ROOTS: Final = 40
# Never opened as a whole: each holds what belongs to others. Deeper folders of them may be.
_SHARED: Final = frozenset(
    (
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root"),
        *("/run", "/sbin", "/srv", "/sys", "/usr", "/usr/local", "/usr/share", "/usr/lib", "/var", "/var/lib"),
        *("/var/log", "/var/run", "/var/spool", "/Users", "/Volumes", "/Library", "/System", "/Applications"),
        *("/private", "/tmp", "/var/tmp"),  # noqa: S108  names, not files of ours
    )
)
_CLOSED: Final = re.compile(r"/(?:etc|proc|sys|dev|boot|root|run)(?:/|$)")
_HOME: Final = re.compile(r"/(?:home|Users)/[^/]+(?:/(?:\.[^/]+|Library|AppData))?")


def is_too_wide(folder: str) -> bool:
    """Return whether a folder may not stand for what is in it: a shared one, a home, or one of the system's own."""
    return folder in _SHARED or _HOME.fullmatch(folder) is not None or _CLOSED.match(folder) is not None


def find_roots(paths: Iterable[str]) -> list[str] | None:
    """Return files and folders that cover `paths`; None where that takes too many."""
    plain = {posixpath.normpath(path) for path in paths}
    children: dict[str, set[str]] = {}
    for path in plain:
        for folder, child in pairwise([*reversed([*_parents(path)]), path]):
            children.setdefault(folder, set()).add(child)
    wide = {folder for folder, inside in children.items() if len(inside) >= SEVERAL and not is_too_wide(folder)}
    roots = {next((one for one in reversed([*_parents(path)]) if one in wide), path) for path in plain}
    found = sorted(root for root in roots if roots.isdisjoint(_parents(root)))
    return found if len(found) <= MAX_ROOTS and "/" not in roots else None


def _parents(path: str) -> Iterator[str]:
    """Return the folders that a path is in, the nearest first; the root of all is none of them."""
    while (path := posixpath.dirname(path)) not in ("/", ""):
        yield path
