"""What a server did that its profile does not grant: refused by the kernel, or let pass in shadow and learn. Pure.

A file that is absent is no violation: programs look for many files that are not there. Nor is a refusal of the file
system itself, for a file that the profile grants. Asking about a file (stat, access) is not seen, and not judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from proxy.sandbox.profile import host_fits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from proxy.sandbox.file_scope import FileLimits, PathSet

ABSENT: Final = frozenset({"ENOENT", "ENOTDIR", "ENXIO"})
# What the mechanisms answer. Another error is the file system's or the peer's own.
MECHANISMS: Final = {
    "EACCES": "landlock",
    "EROFS": "mount",
    "EPERM": "seccomp",
    "ENOSYS": "seccomp",
}
NO_WAY_OUT: Final = frozenset({"ENETUNREACH", "EHOSTUNREACH"})
VIEW: Final = "view"
WOULD_BE: Final = "none"  # shadow and learn: nothing refused it
# In a server's own processes, and in what it listens on below its own network, there is nobody to protect.
_ASKED_ALL_THE_TIME: Final = frozenset({"kill", "io_uring_setup"})


class Seen(Protocol):
    """An observation, as far as it is judged."""

    @property
    def capability(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def path(self) -> str | None: ...
    @property
    def peer(self) -> str | None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def error(self) -> str | None: ...


class Violation(NamedTuple):
    """An act that no line of the profile grants."""

    capability: str
    action: str
    target: str  # the path, or the peer
    line: str  # the profile's line that refuses it, or the one that would have to grant it
    mechanism: str  # landlock, mount, view, seccomp, namespace, forwarder, supervisor; none where it was only noted
    error: str | None = None

    @property
    def told(self) -> str:
        """Say in one sentence what was refused, for a person or a model."""
        how = "was refused" if self.mechanism != WOULD_BE else "would be refused"
        return f"{self.capability} ({self.action}) of {self.target!r} {how}: {self.line}."

    def shown(self) -> dict[str, str]:
        """Return it as it is recorded."""
        values = {name: value for name, value in self._asdict().items() if value is not None}
        return {**values, "would_be": "true"} if self.mechanism == WOULD_BE else values


def _nowhere(_: str) -> bool:
    return False


@dataclass(frozen=True, eq=False)
class Boundaries:
    """What a profile grants on this machine."""

    files: FileLimits
    programs: PathSet
    sockets: frozenset[str]
    hosts: tuple[str, ...] | None  # None: any
    hidden_by: Callable[[str], str | None]  # the line that hides a path
    exists: Callable[[str], bool] = _nowhere  # whether a path is there, outside of the server's own view


def violations(observations: Iterable[Seen], granted: Boundaries, *, enforced: bool) -> list[Violation]:
    """Return what of the observations the profile does not grant.

    `enforced`: only what was refused, by its error. Else what was done, and would have been refused.
    """
    return [found for seen in observations if (found := violation(seen, granted, enforced=enforced)) is not None]


def violation(seen: Seen, granted: Boundaries, *, enforced: bool) -> Violation | None:
    """Return the violation that an observation is, or None."""
    mechanism = _mechanism(seen, granted) if enforced else WOULD_BE if seen.error is None else None
    line = _refusing_line(seen, granted) if mechanism is not None else None
    if line is None or mechanism is None:
        return None
    target = seen.path or seen.peer or seen.name or ""
    return Violation(str(seen.capability), seen.action, target, line, mechanism, seen.error)


def _mechanism(seen: Seen, granted: Boundaries) -> str | None:
    """Return what refused an act, as far as its error tells; None where nothing did."""
    if seen.error in ABSENT:
        # In its own root folder a server finds only what is granted. What is absent outside too was not refused.
        return VIEW if seen.path is not None and _is_outside(seen.path, str(seen.capability), granted) else None
    if seen.error in NO_WAY_OUT and seen.capability in ("net.connect", "net.dns"):
        return "namespace"
    return MECHANISMS.get(seen.error or "")


def _is_outside(path: str, kind: str, granted: Boundaries) -> bool:
    """Return whether something is at a path outside of the sandbox; what is to be made needs its folder alone."""
    return granted.exists(path) or (kind == "fs.write" and granted.exists(path.rpartition("/")[0] or "/"))


def _refusing_line(seen: Seen, granted: Boundaries) -> str | None:
    kind, path = str(seen.capability), seen.path
    if kind in ("fs.read", "fs.write", "fs.delete"):
        return _file_line(path, granted, write=kind != "fs.read")
    if kind in ("proc.exec", "exec.fileless"):
        return (
            None if path is not None and path in granted.programs and kind == "proc.exec" else "exec does not list it"
        )
    if kind == "ipc.unix":
        return None if path in granted.sockets or path is None else "sockets does not list it"
    if kind == "net.connect":
        return _peer_line(seen.peer, granted.hosts)
    if kind == "net.dns":
        return _name_line(seen.name, granted.hosts)
    if kind == "kernel" and seen.action not in _ASKED_ALL_THE_TIME:
        return "no profile grants this system call"
    return None


def _file_line(path: str | None, granted: Boundaries, *, write: bool) -> str | None:
    if path is None or granted.files.grants(path, write) or path in granted.files.fresh:
        return None
    if _is_runtime(path, write=write) or (not write and granted.files.leads_on(path)):
        return None
    hidden = granted.hidden_by(path)
    return hidden or ("write does not list it" if write else "read and write do not list it")


def _is_runtime(path: str, *, write: bool) -> bool:
    """Return whether a path is no file of anybody's: the kernel's own, which mounts and not profiles decide on."""
    return path.startswith(("/proc/", "/sys/", "/dev/")) and (not write or path.startswith("/dev/"))


def _peer_line(peer: str | None, hosts: tuple[str, ...] | None) -> str | None:
    if hosts is None or peer is None:
        return None
    host, _, port = peer.rpartition(":")
    # An address says nothing about the names on a list; the lookup of the name was judged.
    if any(not _is_address(entry) for entry in hosts) and _is_address(host):
        return None
    fits = port.isdecimal() and host_fits(host, int(port), hosts)
    return None if fits else "network does not list it"


def _name_line(name: str | None, hosts: tuple[str, ...] | None) -> str | None:
    if hosts is None or name is None:
        return None
    ports = {entry: entry.rpartition(":")[2] for entry in hosts}
    fits = any(host_fits(name, int(port) if port.isdecimal() else 443, (entry,)) for entry, port in ports.items())
    return None if fits else "network does not list it"


def _is_address(host: str) -> bool:
    return host.startswith("[") or host.replace(".", "").replace(":", "").isdecimal()


def unique(found: Iterable[Violation]) -> Iterator[tuple[Violation, int]]:
    """Yield each violation once, with how often it occurred."""
    counts: dict[Violation, int] = {}
    for each in found:
        counts[each] = counts.get(each, 0) + 1
    yield from counts.items()
