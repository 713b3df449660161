"""Turns a profile into the files of this machine: variables and globs become folders, and secrets are taken out."""

from __future__ import annotations

import glob
import os
import shutil
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from proxy.sandbox.profile import SandboxLimits, chosen_environment
from proxy.sandbox.secrets import is_secret, is_secret_name, secret_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from proxy.sandbox.profile import SandboxProfile

MAX_MATCHES: Final = 10_000  # of one glob, and of the files that a hide line is looked for in
# Folders of packages: nobody keeps secrets there, and walking them takes longer than a server's start.
SKIPPED: Final = frozenset({"node_modules", ".venv", "site-packages", ".git", "__pycache__"})
_MARKS: Final = frozenset("*?[")
_PROGRAMS: Final = ("/usr", "/bin", "/lib", "/lib64", "/nix", "/proc", "/sys", "/dev")
_SYSTEM: Final = (*_PROGRAMS, "/etc", "/opt")
_INSTALLED: Final = (".npm", ".cache", ".nvm", ".volta", ".bun", ".pyenv", ".local")  # below a home; presets grant them


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the variables of a profile stand for."""

    home: str
    cwd: str
    roots: tuple[str, ...] = ()  # the client's
    tmp: tuple[str, ...] = ("/tmp", "/var/tmp")  # noqa: S108
    package: tuple[str, ...] = ()  # the server's own
    path: str = os.defpath

    @property
    def homes(self) -> tuple[str, ...]:
        real = os.path.realpath(self.home)
        return (self.home,) if real == self.home else (self.home, real)


@dataclass(frozen=True, slots=True)
class Grants:
    """What a server may touch, as absolute paths that exist. Folders stand for everything below them."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()  # exist inside of the above, and are covered; no folder above them can be renamed
    hide: tuple[str, ...] = ()  # absolute globs, for what is made later
    exec: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    unix: bool = False  # unix sockets may be made: to those above, and to its own in the temporary folders
    temporary: tuple[str, ...] = ()  # writable, and nobody else's
    made: tuple[tuple[str, int], ...] = ()  # empty files, with their inodes, that were made to be written
    absent: tuple[str, ...] = ()  # were to be written, and cannot be granted, since they do not exist
    env: dict[str, str] = field(default_factory=dict[str, str])
    hosts: tuple[str, ...] | None = ()  # None: any
    limits: SandboxLimits = field(default_factory=SandboxLimits)


def expand(profile: SandboxProfile, around: Surroundings, environ: Mapping[str, str]) -> Grants:
    """Return what a profile grants here. What is to be written, such as `$HOME/.npm/**` or a file, is created."""
    opened = frozenset(path for line in profile.secrets for path in _matches(line, around))
    hidden = _Hidden(profile.hide, around, opened)
    made, absent = _make_files(profile.write, around, hidden)
    writable = [path for line in profile.write for path in _matches(line, around, create=True)]
    scratch = _scratch(around)
    temporary = tuple(path for path in writable if path in scratch)
    write = [part for path in writable if path not in scratch for part in hidden.without(path)]
    readable = [path for line in profile.read for path in _matches(line, around)]
    read = [part for path in readable for part in hidden.without(path)]
    granted = tuple(dict.fromkeys((*read, *sorted(opened))))
    sockets = tuple(dict.fromkeys(path for line in profile.sockets for path in substitute(line, around)))
    # Who may use any unix socket could connect to each that it sees.
    shared = tuple(path for path in sockets if path not in scratch)
    _check_sockets(shared)
    unlisted = hidden.special((*granted, *write), sockets) if sockets else ()
    return Grants(
        read=granted,
        write=tuple(dict.fromkeys(write)),
        hidden=tuple(dict.fromkeys((*hidden.inside((*granted, *write), (*readable, *writable)), *unlisted))),
        hide=tuple(pattern for line in profile.hide for pattern in substitute(line, around)),
        exec=tuple(dict.fromkeys(path for line in profile.exec for path in _programs(line, around))),
        sockets=shared,
        unix=bool(sockets),
        temporary=tuple(dict.fromkeys(temporary)),
        made=made,
        absent=absent,
        env=chosen_environment(profile.env, environ),
        hosts=profile.hosts,
        limits=profile.limits,
    )


def written_paths(profile: SandboxProfile, around: Surroundings) -> tuple[str, ...]:
    """Return what a server may write, without its own temporary folders; nothing is created."""
    return tuple(path for line in profile.write for path in _matches(line, around) if path not in _scratch(around))


def _scratch(around: Surroundings) -> tuple[str, ...]:
    return (*around.tmp, "/dev/shm")  # noqa: S108  each server has its own


def substitute(line: str, around: Surroundings) -> list[str]:
    """Return a line with its variable replaced, once for each folder that the variable stands for."""
    if line == "~" or line.startswith("~/"):
        line = f"$HOME{line[1:]}"
    values: dict[str, tuple[str, ...]] = {
        "HOME": (around.home,),
        "CWD": (around.cwd,),
        "ROOTS": around.roots,
        "TMP": around.tmp,
        "PACKAGE": around.package,
    }
    for name, folders in values.items():
        for spelt in (f"${{{name}}}", f"${name}"):
            rest = line.removeprefix(spelt)
            if rest != line and (not rest or rest.startswith("/")):
                return [os.path.normpath(f"{folder}{rest}") for folder in folders]
    return [line]


def _matches(line: str, around: Surroundings, *, create: bool = False) -> Iterator[str]:
    """Return the paths that exist for a line; `folder/**` is the folder."""
    for pattern in substitute(line, around):
        plain = pattern.removesuffix("/**")
        if not _MARKS.isdisjoint(plain):
            yield from _glob(plain)
            continue
        if create and plain != pattern and not os.path.lexists(plain):
            os.makedirs(plain, mode=0o700, exist_ok=True)  # noqa: PTH103
        if os.path.lexists(plain):
            yield plain


def _make_files(
    lines: Iterable[str], around: Surroundings, hidden: _Hidden
) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    """Make an empty file for each that is to be written and does not exist; return those, and what cannot be made.

    Only a file that exists can be shown to a server. A name without a dot may be meant as a folder: that is not made.
    """
    made: list[tuple[str, int]] = []
    absent: list[str] = []
    for path in dict.fromkeys(path for line in lines for path in substitute(line, around)):
        if path.endswith("/**") or not _MARKS.isdisjoint(path) or os.path.lexists(path):
            continue
        if not os.path.splitext(path)[1] or not [*hidden.without(path)]:  # noqa: PTH122
            absent.append(path)
            continue
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            absent.append(path)
            continue
        made.append((path, os.fstat(handle).st_ino))
        os.close(handle)
    return tuple(made), tuple(absent)


def _glob(pattern: str) -> Iterator[str]:
    found = glob.iglob(pattern, recursive=True, include_hidden=True)  # noqa: PTH207  no Path for each
    for count, path in enumerate(found):
        if count >= MAX_MATCHES:
            raise ValueError(f"{pattern!r} fits more than {MAX_MATCHES} paths; name the folder instead")
        yield path


def _programs(line: str, around: Surroundings) -> Iterator[str]:
    if "/" in line:
        yield from _matches(line, around)
        return
    if _MARKS.isdisjoint(line):
        found = shutil.which(line, path=around.path)
        if found:
            yield found
        return
    for folder in around.path.split(os.pathsep):
        yield from _glob(os.path.join(glob.escape(folder), line))  # noqa: PTH118


class _Hidden:
    """The secrets, and what `hide` names: taken out of folders that are granted as a whole."""

    def __init__(self, hide: Iterable[str], around: Surroundings, opened: frozenset[str]) -> None:
        self._homes = around.homes
        self._opened = opened
        self._packages = frozenset(around.package)
        self._roots = frozenset(os.path.realpath(root) for root in (*around.roots, around.cwd))
        self._patterns = [pattern for line in hide for pattern in substitute(line, around)]
        plain = [pattern for pattern in self._patterns if _MARKS.isdisjoint(pattern.removesuffix("/**"))]
        # A home below /root, or /root itself, must not take the whole home out.
        closed = [path for path in secret_paths(self._homes) if not _holds(path, self._homes)]
        self._closed = {*closed, *(pattern.removesuffix("/**") for pattern in plain)}
        self._above = {above for path in self._closed for above in _ancestors(path)}

    def _is_personal(self, folder: str) -> bool:
        """Return whether people keep files there: not the system's folders, nor caches and programs in a home."""
        below = [folder[len(home) + 1 :] for home in self._homes if folder.startswith(f"{home}/")]
        return not _is_system(folder) and (folder in self._roots or not any(each.startswith(".") for each in below))

    def _is_programs(self, folder: str) -> bool:
        """Return whether programs and package managers keep there what they installed: too much to be searched."""
        places = (*_PROGRAMS, *(f"{home}/{name}" for home in self._homes for name in _INSTALLED))
        return os.path.basename(folder) in SKIPPED or any(_is_in(folder, each) for each in places)  # noqa: PTH119

    def _is_searched(self, path: str) -> bool:
        # A server that was written where it runs has its package among the user's own files.
        return path not in self._packages or os.path.realpath(path) in self._roots

    def _is_closed(self, path: str) -> bool:
        if path in self._opened:
            return False
        return path in self._closed or is_secret(path, self._homes)

    def without(self, path: str) -> Iterator[str]:
        """Return a path, or what is in it besides secrets. A secret may be made later: its folder is split anyway."""
        real = os.path.realpath(path)
        if self._is_closed(path) or self._is_closed(real):
            return
        if not {path, real} & self._above or not os.path.isdir(real):  # noqa: PTH112
            yield path
            return
        try:
            names = sorted(os.listdir(path))  # noqa: PTH208
        except OSError:
            return
        for name in names:
            yield from self.without(f"{path.rstrip('/')}/{name}")

    def inside(self, granted: Iterable[str], named: Iterable[str]) -> Iterator[str]:
        """Return what lies inside of granted folders and is hidden by its name; `named` are those of the lines."""
        names = [pattern[3:] for pattern in self._patterns if pattern.startswith("**/")]
        others = [
            pattern for pattern in self._patterns if not pattern.startswith("**/") and pattern not in self._closed
        ]
        found = [path for pattern in others for path in _glob(pattern)]
        fits = _name_test(names)
        folders = dict.fromkeys(os.path.realpath(path) for path in granted if self._is_searched(path))
        personal = [folder for folder in folders if self._is_personal(folder)]
        found += walk(personal, fits)
        if names:
            # In a folder that a line names a profile hides what it says, whoever keeps it. Not in all of a home's.
            whole = {os.path.realpath(path) for path in named} - set(personal)
            others = [folder for folder in folders if folder in whole and not self._is_programs(folder)]
            found += walk(others, _name_test(names, secrets=False))
        # What a link leads to has another name.
        targets = {os.path.realpath(path): None for path in found if os.path.islink(path)}  # noqa: PTH114
        found += [path for path in targets if any(_is_in(path, folder) for folder in folders)]
        yield from (path for path in dict.fromkeys(found) if path not in self._opened)

    def special(self, granted: Iterable[str], listed: Sequence[str]) -> list[str]:
        """Return the sockets inside of granted folders that are not listed."""
        folders = dict.fromkeys(os.path.realpath(path) for path in granted if self._is_searched(path))
        kept = frozenset(os.path.realpath(path) for path in listed)
        found = [path for path in folders if _is_socket(path)]
        shown = [folder for folder in folders if not _is_system(folder)]
        found += walk(shown, lambda path, _name: _is_socket(path), SKIPPED - {".git"}, plain=False)
        return [path for path in found if path not in kept]


def _check_sockets(paths: Iterable[str]) -> None:
    """Raise ValueError for what is no socket: a folder would be shown whole, its secrets as well."""
    for path in paths:
        if os.path.exists(path) and not _is_socket(os.path.realpath(path)):  # noqa: PTH110
            raise ValueError(f"{path!r} under sockets is no unix socket; name the socket itself")


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _name_test(patterns: Sequence[str], *, secrets: bool = True) -> Callable[[str, str], bool]:
    if not patterns:
        return lambda _, name: is_secret_name(name)
    from proxy.sandbox.path_globs import compile_tail  # noqa: PLC0415

    tails = [compile_tail(pattern) for pattern in patterns]
    return lambda path, name: (secrets and is_secret_name(name)) or any(tail(path) for tail in tails)


def walk(
    folders: Sequence[str],
    fits: Callable[[str, str], bool],
    skipped: frozenset[str] = SKIPPED,
    *,
    plain: bool = True,
) -> list[str]:
    """Return the paths below folders that fit; folders of packages are left out. Raises ValueError for too many.

    `plain`: ordinary files are asked about, too.
    """
    found: list[str] = []
    waiting, seen = list(folders), 0
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            # The server may not list it either, but may own it, and give itself the right to.
            found.append(folder)
            continue
        for entry in entries:
            seen += 1
            if (plain or not entry.is_file(follow_symlinks=False)) and fits(entry.path, entry.name):
                found.append(entry.path)
            elif entry.is_dir(follow_symlinks=False) and entry.name not in skipped:
                waiting.append(entry.path)
        if seen > (5 if plain else 20) * MAX_MATCHES:
            raise ValueError(f"{folder!r} has too many files to look for hidden ones; name a smaller folder")
    return found


def _is_system(folder: str) -> bool:
    return any(_is_in(folder, each) for each in _SYSTEM)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _ancestors(path: str) -> Iterator[str]:
    while path not in ("/", ""):
        path = os.path.dirname(path)  # noqa: PTH120
        yield path


def _holds(path: str, homes: tuple[str, ...]) -> bool:
    return any(home == path or home.startswith(f"{path}/") for home in homes)
