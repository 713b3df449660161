"""What a process can do to itself, and not undo: namespaces, mounts, capabilities.

Only steps that the kernel may refuse, each with the reason in words. Who takes
which of them, and in what order, is the business of `trace/` and `confine/`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import stat
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 1 << 18
MS_NOSUID, MS_NODEV = 0x2, 0x4
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, ATTR_RDONLY = 442, -100, 0x8000, 0x1
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITIES = 64
CAPABILITY_VERSION = 0x20080522
PROGRAMS = "/usr/sbin:/sbin:/usr/bin:/bin"
_LIBC = ctypes.CDLL(None, use_errno=True)


class NamespaceError(Exception):
    """The system refuses a step; the message says which."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """What is laid over what: `over` is bound to `path`, or an empty folder where there is none."""

    path: str
    over: str | None = None
    made: bool = False
    """Where `path` is, or leads to, nothing, it is made first."""


def enter_user_namespace(user: int, group: int) -> None:
    """Make a user namespace in which we are `user` and `group`, and nobody else is there. Raises NamespaceError."""
    outer_user, outer_group = os.geteuid(), os.getegid()
    try:
        os.unshare(os.CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {outer_user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {outer_group} 1")
    except OSError as error:
        raise NamespaceError(f"a user namespace: {error.strerror}") from error


def prctl(option: int, *values: int) -> None:
    """Ask the kernel something about this process. Raises OSError where it refuses."""
    words = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    if _LIBC.prctl(option, *words) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def drop_capabilities(kept: tuple[int, ...] = ()) -> None:
    """See that no program started from here has a capability but those, though it be root in here."""
    for number in range(CAPABILITIES):
        if number not in kept:
            with contextlib.suppress(OSError):  # the kernel does not know as many
                prctl(PR_CAPBSET_DROP, number)


def renounce_capabilities() -> None:
    """Return up every capability, for this process and whatever it becomes or starts.

    Raises NamespaceError where one is left.
    """
    drop_capabilities()
    with contextlib.suppress(OSError):  # a kernel without ambient capabilities has none to clear
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    head, none = struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24)
    if _LIBC.capset(head, none) != 0:
        raise NamespaceError(f"dropping capabilities: {os.strerror(ctypes.get_errno())}")
    try:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    except OSError as error:
        raise NamespaceError(f"forbidding new privileges: {error.strerror}") from error
    if any(capability_sets().values()):
        raise NamespaceError("dropping capabilities: some are left")


def capability_sets() -> dict[str, int]:
    """Return this process's capabilities by kind, as the kernel tells them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line[:6]: int(line.split()[1], 16) for line in lines if line.startswith("Cap")}


def run_program(program: str, *words: str, said: str = "") -> None:
    """Run one of the system's programs to its end. Raises NamespaceError where there is none, or it fails."""
    found = shutil.which(program, path=PROGRAMS)
    if found is None:
        raise NamespaceError(f"there is no program {program!r}")
    done = subprocess.run([found, *words], input=said.encode(), capture_output=True, timeout=20, check=False)  # noqa: S603
    if done.returncode:
        raise NamespaceError(f"{program} {' '.join(words)}: {done.stderr.decode(errors='replace').strip()[:200]}")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount something somewhere, as the system call of that name does. Raises NamespaceError where that is refused."""
    words = [os.fsencode(word) if word is not None else None for word in (source, target, kind)]
    if _LIBC.mount(*words, ctypes.c_ulong(flags), data.encode() or None) != 0:
        raise NamespaceError(f"mounting {kind or 'a view'} on {target}: {os.strerror(ctypes.get_errno())}")


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def set_read_only(path: str, *, on: bool, flags: int = 0) -> None:
    """Make a mount read-only or writable; with AT_RECURSIVE, all below it too. Raises NamespaceError."""
    wanted = _Attributes(ATTR_RDONLY if on else 0, 0 if on else ATTR_RDONLY, 0, 0)
    arguments = ctypes.byref(wanted), ctypes.c_size_t(ctypes.sizeof(wanted))
    if _LIBC.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), ctypes.c_uint(flags), *arguments) != 0:
        raise NamespaceError(f"making {path} {'read-only' if on else 'writable'}: {os.strerror(ctypes.get_errno())}")


def hide(cover: Hidden) -> None:
    """Lay one thing over another; what is not there needs no cover. Raises NamespaceError."""
    path = os.path.realpath(cover.path)
    if cover.made and not os.path.exists(path):  # noqa: PTH110  what we may not look into is not there for us
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
    if cover.over is not None and os.path.exists(path):  # noqa: PTH110
        mount(cover.over, path, None, MS_BIND | MS_REC)
    elif cover.over is None and os.path.isdir(path):  # noqa: PTH112
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV)


def sockets_below(folder: str, depth: int) -> list[str]:
    """Return the paths of the unix sockets in a folder and those in it, so many levels deep, as far as we may look."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                found += sockets_below(entry.path, depth - 1) if depth > 1 else []
            elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                found += [entry.path] if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode) else []
    return found


def listening_sockets() -> tuple[str, ...]:
    """Return the paths of the unix sockets of this machine, as far as they are told; ask outside of any namespace.

    The kernel tells the name that each was given at first. One that has another since, as those that ssh
    makes for its connections, is looked for in the same folder; one without a folder, wherever a process is.
    """
    names: set[str] = set()
    with contextlib.suppress(OSError):
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
        names = {words[7] for words in (line.split(None, 7) for line in lines) if len(words) == 8}
    found = {name for name in names if name.startswith("/")}
    for folder in {os.path.dirname(name) for name in found if not os.path.exists(name)}:  # noqa: PTH110, PTH120
        if not folder.startswith("/proc/"):  # what is there is of whoever looks
            found.update(sockets_below(folder, 1))
    near = [name for name in names if not name.startswith(("/", "@"))]
    if near:
        places = (os.path.normpath(f"{folder}/{name}") for folder in _working_folders() for name in near)
        found.update(path for path in places if Path(path).is_socket())
    return tuple(sorted(found))


def _working_folders() -> set[str]:
    """Return the folders that processes are in, as far as we may look."""
    found = set()
    for name in os.listdir("/proc"):  # noqa: PTH208  names, of which most are no process's
        if name.isdigit():
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{name}/cwd"))  # noqa: PTH115
    return found


def close_from(first: int) -> None:
    """Close every file from that number on, those past a limit that was lowered since among them."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) >= first:
            with contextlib.suppress(OSError):  # the one that the list was read by
                os.close(int(name))
