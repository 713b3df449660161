"""Which files a server may open at a moment: its runtime's, and what the calls in flight named. Pure, no I/O."""

from __future__ import annotations

import functools
import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MAX_NAMED: Final = 1024
MAX_PATH: Final = 4096
MAX_DEPTH: Final = 12
_KNOWN: Final = 8192


class PathSet:
    """Paths, each with everything below it."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self.paths = frozenset(path.rstrip("/") or "/" for path in paths)
        self._below = tuple("/" if path == "/" else f"{path}/" for path in self.paths)

    def __contains__(self, path: str) -> bool:
        return path in self.paths or path.startswith(self._below)

    def leads_to(self, folder: str) -> bool:
        """Return whether one of the paths lies below a folder."""
        below = folder.rstrip("/") + "/"
        return any(path.startswith(below) for path in self.paths)


def _nothing(_: str) -> bool:
    return False


@dataclass(frozen=True, eq=False)
class FileLimits:
    """What a profile grants at all (`read`, `write`), and the part of it that is open at all times."""

    read: PathSet
    write: PathSet
    always_read: PathSet = field(default_factory=PathSet)
    always_write: PathSet = field(default_factory=PathSet)
    fresh: PathSet = field(default_factory=PathSet)  # folders in which new files may be made at all times
    hidden: Callable[[str], bool] = _nothing

    def __post_init__(self) -> None:
        # Every open asks, and servers open the same files again and again.
        for name in ("grants", "always", "leads_on"):
            object.__setattr__(self, name, functools.lru_cache(_KNOWN)(getattr(self, name)))

    def grants(self, path: str, write: bool) -> bool:  # noqa: FBT001  positional for the cache
        """Return whether the profile grants a file, whatever the calls in flight are."""
        return (path in self.write or (not write and path in self.read)) and not self.hidden(path)

    def always(self, path: str, write: bool) -> bool:  # noqa: FBT001
        """Return whether a file is open at all times."""
        granted = path in self.always_write or (not write and path in self.always_read)
        return granted and not self.hidden(path)

    def leads_on(self, path: str) -> bool:
        """Return whether a folder is on the way to something granted: programs look there for what is granted."""
        return self.read.leads_to(path) or self.write.leads_to(path)


class FileScope:
    """What may be opened now. `named` are the paths that the calls in flight named; None where the profile decides."""

    def __init__(self, limits: FileLimits, named: Iterable[str] | None = ()) -> None:
        self._limits = limits
        self._named = None if named is None else PathSet(path for path in named if path != "/")
        self._exactly_root = named is not None and "/" in named

    def permits(self, path: str, *, write: bool) -> bool:
        """Return whether a file, by its real location, may be opened."""
        if self._limits.always(path, write):
            return True
        if self._named is not None and path not in self._named and not (self._exactly_root and path == "/"):
            return False
        return self._limits.grants(path, write)

    def permits_listing(self, path: str) -> bool:
        """Return whether a folder may be listed because something in it was named: its names, and no file in it.

        Servers look for other spellings of what was named, folder by folder.
        """
        return self._named is not None and self._named.leads_to(path) and self._limits.grants(path, False)

    def leads_on(self, path: str) -> bool:
        """Return whether a folder, which is not open itself, is on the way to something granted."""
        return self._limits.leads_on(path)

    def permits_new(self, path: str) -> bool:
        """Return whether a file may be made that `permits` does not open: where nobody else's can be, and as a copy.

        Many programs write a copy beside a file first, and then rename it to what was named.
        """
        if path in self._limits.fresh and not self._limits.hidden(path):
            return True
        if self._named is None:
            return False
        folder, name = posixpath.split(path)
        named = (posixpath.split(each) for each in self._named.paths)
        return any(folder == its and base and base in name for its, base in named) and self._limits.grants(path, True)


def named_paths(arguments: Any, folders: Sequence[str], home: str) -> frozenset[str]:
    """Return the absolute paths that a call's arguments name; relative ones below each of `folders`.

    A folder that is named stands for all that is in it, `/` for itself alone.
    """
    found: set[str] = set()
    for text in _texts(arguments):
        for path in _spellings(text, folders, home):
            found.add(path)
            if len(found) >= MAX_NAMED:
                return frozenset(found)
    return frozenset(found)


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        # Text of several lines is content, not a name.
        if 0 < len(value) <= MAX_PATH and "\0" not in value and "\n" not in value:
            yield value
    elif depth < MAX_DEPTH and isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item, depth + 1)


def _spellings(text: str, folders: Sequence[str], home: str) -> Iterator[str]:
    if text.startswith("file:"):
        try:
            parts = urlsplit(text)
        except ValueError:
            return
        if parts.netloc in ("", "localhost") and parts.path.startswith("/"):
            yield _normal(unquote(parts.path))
    elif text.startswith("/"):
        yield _normal(text)
    elif text == "~" or text.startswith("~/"):
        yield _normal(f"{home}/{text[2:]}")
    elif "://" not in text:
        yield from (_normal(f"{folder}/{text}") for folder in folders)


def _normal(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}")
