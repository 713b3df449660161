"""Plans a sandbox: what a profile grants becomes mounts, Landlock rules and limits for `sandbox_exec`."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from proxy.sandbox.grants import Grants
    from proxy.sandbox.server_process import Launch

# The loaders of dynamic programs: the kernel opens them as programs.
LOADERS: Final = (
    *("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-linux-riscv64-lp64d.so.1"),
    *("/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1"),
)
DEVICES: Final = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))
# Without a /proc of its own: what describes the machine, and no other process.
PROC_OUTSIDE: Final = tuple(
    f"/proc/{name}" for name in ("self", "meminfo", "cpuinfo", "stat", "uptime", "version", "filesystems")
)
_STRENGTH: Final = {"socket": 0, "read": 1, "write": 2, "own": 3}


@dataclass(frozen=True, slots=True)
class WayOut:
    """How a server reaches hosts: the ports that lead to the proxy, and the rules that lead every other port there."""

    ports: tuple[int, ...] | None = None
    dns_port: int = 53
    firewall: str | None = None
    proxy: tuple[str, int] | None = None
    given: dict[str, str] = field(default_factory=dict[str, str])
    environ: dict[str, str | None] = field(default_factory=dict[str, "str | None"])


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """What `sandbox_exec` is told. `ports` are those that lead to the proxy; None where there is no network."""

    launch: Launch
    grants: Grants
    folder: str
    package: tuple[str, ...] = ()
    require: bool = False
    supervisor: int | None = None  # the descriptor of the socket to who answers for each file
    namespaces: bool = True
    ports: tuple[int, ...] | None = None
    dns_port: int = 53
    firewall: str | None = None  # rules for nft, where every port is to lead to the first of `ports`
    given: Mapping[str, str] = field(default_factory=dict[str, str])
    environ: Mapping[str, str] = field(default_factory=dict[str, str])

    def spec(self) -> dict[str, Any]:
        """Return the plan in the form that travels."""
        files = _Files()
        writable = changeable_folders(self.grants.write)
        for path in (*_unreplaceable(self.grants.read, writable), *self.package, self.launch.program):
            if path not in self.given:  # the machine's own is not shown, and a link there must not be followed
                files.add(path, "read")
        # Of what it reads anyway it could run the code as well: an environment's `python` leads to the system's.
        readable = [os.path.realpath(path) for path in _unreplaceable(self.grants.read, writable)]
        programs = [*_unreplaceable(self.grants.exec, writable, readable)]
        for path in programs:
            files.add(path, "read")
        for path in _unreplaceable(self.grants.write, writable):
            files.add(path, "own" if _holds_package(path, self.package) else "write")
        for path in _unreplaceable(self.grants.sockets, writable):
            files.add(path, "socket")
        shown = files.chosen(self.grants.temporary)
        hidden = [path for path in self.grants.hidden if not _is_below_any(path, self.grants.sockets)]
        changed = [path for path, kind in shown if kind in ("write", "own")]
        rules = [(path, "read" if kind == "socket" else kind) for path, kind in shown if not path.startswith("/dev/")]
        rules += [(path, "exec") for path in self._programs(programs)]
        rules += [(path, "device") for path in DEVICES]
        rules += [(path, "write") for path in self.grants.temporary]
        return {
            "program": os.path.abspath(self.launch.program),  # noqa: PTH100
            "argv": list(self.launch.argv),
            "environ": dict(self.environ),
            "folder": self.folder,
            "user": os.geteuid(),
            "group": os.getegid(),
            "require": self.require,
            "supervisor": self.supervisor,
            "namespaces": self.namespaces,
            "ports": None if self.ports is None else list(self.ports),
            "dns_port": self.dns_port,
            "firewall": self.firewall,
            "unix": self.grants.unix,
            "limits": self.grants.limits.model_dump(exclude_none=True),
            "view": {
                "files": shown,
                "links": files.links,
                "temporary": list(self.grants.temporary),
                # A cover stays with what it covers. Were a folder above renamed, the next start would look for another
                # file at its path, or not look at all: some names are not searched.
                "pinned": _folders_above(hidden, changed),
                "hidden": hidden,
                "given": dict(self.given),
            },
            "rules": [*rules, ("/proc", "proc"), *((path, "read") for path in self.given)],
            "rules_outside": [*rules, *((path, "read") for path in (*PROC_OUTSIDE, *self.given))],
        }

    def _programs(self, listed: Iterable[str]) -> Iterator[str]:
        """Return what may be executed: the server's program and package, the listed programs, and loaders."""
        for path in (self.launch.program, *self.package, *listed, *LOADERS):
            real = os.path.realpath(path)
            if os.path.exists(real):  # noqa: PTH110
                yield real


def links_on_the_way(path: str) -> tuple[str, ...]:
    """Return the links that an absolute path leads through, each where it is."""
    files = _Files()
    files.add(path, "read")
    return tuple(files.links)


def changeable_folders(paths: Iterable[str]) -> tuple[str, ...]:
    """Return where the paths that may be written really are, without those by a link in one of them."""
    given = tuple(paths)
    real = [os.path.realpath(path) for path in given]
    return tuple(place for path, place in zip(given, real, strict=True) if not is_by_link_in(path, real))


def is_by_link_in(path: str, folders: Sequence[str]) -> bool:
    """Return whether a path leads through a link in one of the folders, given by their real paths."""
    places = [os.path.realpath(os.path.dirname(link)) for link in links_on_the_way(path)]  # noqa: PTH120
    return any(_is_below_any(place, folders) for place in places)


def _unreplaceable(paths: Iterable[str], writable: Sequence[str], open_anyway: Sequence[str] = ()) -> Iterator[str]:
    """Return the paths without those by a link that the server could have made: it would choose what they open.

    One that leads to what is open anyway opens nothing.
    """
    for path in paths:
        if not is_by_link_in(path, writable) or _is_below_any(os.path.realpath(path), (*writable, *open_anyway)):
            yield path


class _Files:
    """Real paths by kind, and the links that lead to them."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self.links: dict[str, str] = {}

    def add(self, path: str, kind: str) -> None:
        real = self._follow(os.path.abspath(path))  # noqa: PTH100
        if real is None:
            return
        known = self._kinds.get(real)
        if known is None or _STRENGTH[kind] > _STRENGTH[known]:
            self._kinds[real] = kind

    def _follow(self, path: str) -> str | None:
        """Return the file behind a path, and note every link on the way; None where nothing is there."""
        for _ in range(40):
            link = self._first_link(path)
            if link is None:
                return path if os.path.exists(path) else None  # noqa: PTH110
            target = os.readlink(link)  # noqa: PTH115
            self.links[link] = target
            rest = path[len(link) :]
            path = os.path.normpath(os.path.join(os.path.dirname(link), target) + rest)  # noqa: PTH118, PTH120
        return None

    @staticmethod
    def _first_link(path: str) -> str | None:
        parts = path.split("/")[1:]
        for count in range(1, len(parts) + 1):
            above = "/" + "/".join(parts[:count])
            try:
                if stat.S_ISLNK(os.lstat(above).st_mode):
                    return above
            except OSError:
                return None
        return None

    def chosen(self, temporary: Iterable[str]) -> list[tuple[str, str]]:
        """Return the paths that need a mount: none whose folder is shown with the same or a greater right."""
        covered = set(temporary)
        return [
            (path, kind)
            for path, kind in sorted(self._kinds.items())
            if path not in covered and not any(self._includes(above, kind) for above in _ancestors(path))
        ]

    def _includes(self, above: str, kind: str) -> bool:
        known = self._kinds.get(above)
        return known is not None and kind != "socket" and _STRENGTH[known] >= _STRENGTH[kind]


def _folders_above(paths: Iterable[str], shown: Sequence[str]) -> list[str]:
    """Return the folders between what is shown and `paths`."""
    above = {folder for path in paths for folder in _ancestors(path)}
    return sorted(folder for folder in above if folder not in shown and _is_below_any(folder, shown))


def _ancestors(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)  # noqa: PTH120
        yield path


def _holds_package(path: str, package: Iterable[str]) -> bool:
    real = os.path.realpath(path)
    return _is_above_any(real, (os.path.realpath(each) for each in package))


def _is_above_any(folder: str, paths: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for path in paths)


def _is_below_any(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
