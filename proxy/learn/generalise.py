"""Turns paths that were touched into the lines of a profile: few, readable, and never broader than needed. Pure.

A path becomes a variable ($ROOTS, $PACKAGE, $TMP, $CWD, $HOME) with as much behind it as is the same for every user.
Below a program's own folder, such as `~/.cache/NAME`, one line stands for all; elsewhere only for a folder of which
several files were seen.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.sandbox.secrets import is_secret

if TYPE_CHECKING:
    from collections.abc import Sequence

SEVERAL = 3  # so many files of one folder become the folder
# Given to every server, or not in anybody's gift.
GIVEN = ("/proc", "/dev")
# Below these, each program has a folder of its own.
OWN_FOLDERS = (".cache", ".config", ".local/share", ".local/state")
# Facts about the machine that runtimes look up, under names that differ between machines.
WHOLE = ("/sys/fs/cgroup", "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm")
PACKAGES = ("site-packages", "node_modules", "dist-packages")
# Never a line as a whole, however many files of them were seen.
SHARED = frozenset({"/", "/etc", "/home", "/opt", "/root", "/run", "/srv", "/sys", "/usr", "/var", "/var/lib", "/mnt"})
# What is another in each name that is made anew: an identifier, a time, a long number or a long hexadecimal one.
_MADE_ANEW = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:[0-9][-_.:T]?){8,}|(?<![0-9a-z])(?=[a-f]*[0-9])[0-9a-f]{8,}(?![0-9a-z])"
)


@dataclass(frozen=True, slots=True)
class Places:
    """What the variables stood for when the server was seen."""

    home: str
    cwd: str = "/"
    roots: tuple[str, ...] = ()
    package: tuple[str, ...] = ()
    tmp: tuple[str, ...] = ("/tmp", "/var/tmp")  # noqa: S108  names, not places to write
    real_home: str | None = None  # of the user, where the server saw another

    @property
    def homes(self) -> tuple[str, ...]:
        return (self.home,) if self.real_home in (None, self.home) else (self.home, self.real_home or "")

    def is_secret(self, path: str) -> bool:
        """Return whether no line but `secrets:` may open a path."""
        return is_secret(path, self.homes)

    def is_broad(self, path: str) -> bool:
        """Return whether a folder is a home, or belongs to many: as a line it would open what was never seen."""
        named = _is_below_any(path, (*self.roots, *self.package))
        return not named and (path in SHARED or path in self.homes or _is_home(path, self))


def generalise(paths: Sequence[str], places: Places, *, written: bool = False) -> dict[str, list[str]]:
    """Return the lines for paths, and the paths that each stands for.

    Secrets and broad folders must have been left out before. Of files that are `written`, those whose name is made anew
    each time stand for their folder.
    """
    first: dict[str, list[str]] = {}
    for path in paths:
        line = _line(path, places)
        if line is not None:
            first.setdefault(line, []).append(path)
    return _merge_folders(first, places, written=written)


def _line(path: str, places: Places) -> str | None:
    if _is_below_any(path, GIVEN):
        return None
    named = [("$ROOTS", each) for each in places.roots] + [("$PACKAGE", each) for each in places.package]
    above = [(len(folder), variable) for variable, folder in named if is_below(path, folder)]
    if above:  # the nearest: a package may lie in the folder that a server was started in, and is elsewhere next time
        return max(above)[1]
    for home in places.homes:
        if is_below(path, home):
            return _below_home(path, home)
    if _is_below_any(path, places.tmp):
        return "$TMP"
    return _elsewhere(path, places)


def _elsewhere(path: str, places: Places) -> str:
    for folder in WHOLE:
        if is_below(path, folder):
            return f"{folder}/**"
    for name in PACKAGES:
        above, found, _ = path.partition(f"/{name}/")
        if found:
            return f"{above}/{name}/**"
    if places.cwd not in SHARED and is_below(path, places.cwd):
        return _joined("$CWD", path[len(places.cwd) :].strip("/"))
    return path


def _is_below_any(path: str, folders: Sequence[str]) -> bool:
    return any(is_below(path, folder) for folder in folders)


def _below_home(path: str, home: str) -> str | None:
    rest = path[len(home) :].strip("/")
    if rest in (
        *OWN_FOLDERS,
        ".local",
    ):  # made on the way to a program's own folder; as a line it would open all of them
        return None
    for folder in OWN_FOLDERS:
        if rest.startswith(f"{folder}/"):
            return f"$HOME/{folder}/{rest[len(folder) + 1 :].partition('/')[0]}/**"
    top, slash, _ = rest.partition("/")
    # A folder of one program, such as ~/.npm. What a person keeps in a folder is another matter.
    return (
        f"$HOME/{top}/**"
        if slash and top.startswith(".") and top not in (".cache", ".config", ".local")
        else (_joined("$HOME", rest))
    )


def _merge_folders(lines: dict[str, list[str]], places: Places, *, written: bool) -> dict[str, list[str]]:
    """Return lines with files of one folder as that folder, where there are several or will be others."""
    folders: dict[str, list[str]] = {}
    for line in lines:
        if not line.endswith("/**") and "/" in line:
            folders.setdefault(posixpath.dirname(line), []).append(line)
    merged = dict(lines)
    for folder, inside in folders.items():
        anew = written and _are_made_anew([posixpath.basename(line) for line in inside])
        if (anew or len(inside) >= SEVERAL) and not _is_shared(folder, places):
            merged[f"{folder}/**"] = [path for line in inside for path in merged.pop(line)]
    wide = [line.removesuffix("/**") for line in merged if line.endswith("/**")]
    return {
        line: paths
        for line, paths in merged.items()
        if not any(line != f"{folder}/**" and is_below(line.removesuffix("/**"), folder) for folder in wide)
    }


def _are_made_anew(names: Sequence[str]) -> bool:
    """Return whether two names differ in nothing but a number. One alone may be a file like any other."""
    kinds = [kind for name in names if (kind := _MADE_ANEW.sub("\0", name)) != name]
    return len(kinds) > len(set(kinds))


def _is_shared(folder: str, places: Places) -> bool:
    whole = folder in SHARED or folder in ("$HOME", "$CWD") or _is_home(folder, places)
    return whole or folder in (f"$HOME/{each}" for each in (*OWN_FOLDERS, ".local"))


def _is_home(folder: str, places: Places) -> bool:
    """Return whether a folder holds the homes, or is somebody else's."""
    homes = posixpath.dirname(places.home)
    return folder == homes or posixpath.dirname(folder) in {"/home", homes} - {"/"}


def _joined(variable: str, rest: str) -> str:
    return f"{variable}/{rest}" if rest else variable


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies in it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
