"""Gives a server a root folder of its own, in which only what its profile names exists.

Runs inside new namespaces, as their root. What is not granted is not there, whatever the host renames or makes later;
what is only to be read is on a read-only mount, so chmod, chown and extended attributes fail as well.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from proxy.sandbox.kernel_calls import (
    ATTR_NODEV,
    ATTR_NOEXEC,
    ATTR_NOSUID,
    ATTR_RDONLY,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    SandboxError,
    mount,
    pivot_root,
    set_mount_attributes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

BASES = ("/tmp", "/mnt", "/var", "/usr")  # noqa: S108  one of them is covered while the view is built
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
# The machine's own switches; real root could use them without any capability.
SWITCHES = ("sys", "irq", "bus", "fs", "acpi", "scsi", "sysrq-trigger")
# What tells of the machine or of other people's keys.
TELLING = (
    *("kcore", "keys", "key-users", "kmsg", "kallsyms", "timer_list", "slabinfo", "vmallocinfo", "config.gz"),
    *("kpagecount", "kpageflags", "kpagecgroup", "pagetypeinfo"),  # of every page of memory; root's alone to read
)
SCRATCH = "mode=1777,size=512m"
COVER = "mode=000,size=4k"
COVER_OF_GIVEN = "mode=711,size=4m"
KINDS = {
    "read": ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV,
    "write": ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC,
    "own": ATTR_NOSUID | ATTR_NODEV,  # written, and executed too: the server's own package lies there
    "socket": ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC,
}


class View:
    """The root folder while it is built. `build` ends inside of it; `own_proc` says whether /proc is our own."""

    def __init__(self) -> None:
        self.own_proc = False
        self.memfd_exec_off = False
        self._base = next(path for path in BASES if os.path.isdir(path))  # noqa: PTH112

    def build(
        self,
        files: list[tuple[str, str]],
        links: dict[str, str],
        temporary: list[str],
        pinned: list[str],
        hidden: list[str],
        given: dict[str, str],
    ) -> None:
        """Show `files` (path and kind) and `links`; cover `hidden`; write `given` texts. Raises SandboxError.

        `pinned` are folders that cannot be renamed or removed.
        """
        # Before any other mount, which would else appear outside where the machine's mounts are shared.
        mount(None, "/", None, MS_REC | MS_PRIVATE)
        # By descriptor: the folder that is about to be covered may hold some of them.
        sources = [(path, kind, _open(path)) for path, kind in sorted(files)]
        mount("tmpfs", self._base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
        self._make_devices()
        for path in temporary:
            self._mkdir(path)
            mount("tmpfs", self._base + path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, SCRATCH)
        for path, kind, handle in sources:
            self._show(path, kind, handle, [each for each in pinned if each.startswith(f"{path}/")])
        for path, target in links.items():
            self._link(path, target)
        covers = self._hide(hidden, given)
        for path, text in given.items():
            self._give(path, text)
        for target in covers:
            set_mount_attributes(target, ATTR_RDONLY)
        self._make_proc()
        pivot_root(self._base)
        set_mount_attributes("/", ATTR_RDONLY, 0)

    def _link(self, path: str, target: str) -> None:
        self._mkdir(os.path.dirname(path))  # noqa: PTH120
        try:
            os.symlink(target, self._base + path)  # noqa: PTH211
        except FileExistsError:
            return  # a folder that is shown stands there

    def _mkdir(self, path: str) -> None:
        os.makedirs(self._base + path, mode=0o755, exist_ok=True)  # noqa: PTH103

    def _show(self, path: str, kind: str, handle: int, pinned: list[str]) -> None:
        target = self._base + path
        if os.path.isdir(f"/proc/self/fd/{handle}"):  # noqa: PTH112
            self._mkdir(path)
        else:
            self._mkdir(os.path.dirname(path))  # noqa: PTH120
            if not os.path.lexists(target):
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        source = f"/proc/self/fd/{handle}"
        if pinned:
            self._pin(source, target, pinned)
        mount(source, target, None, MS_BIND | MS_REC)
        set_mount_attributes(target, KINDS[kind])
        os.close(handle)

    def _pin(self, source: str, target: str, pinned: list[str]) -> None:
        """Have the kernel refuse to rename or remove folders, by a view of them that is then covered.

        It refuses that for a folder on which anything is mounted, in whatever view of the folder. Were it mounted in
        the view that the server sees, files could not be moved from one folder to the other.
        """
        mount(source, target, None, MS_BIND | MS_REC)
        for path in pinned:
            mount(self._base + path, self._base + path, None, MS_BIND | MS_REC)

    def _hide(self, hidden: list[str], given: Iterable[str]) -> list[str]:
        """Cover what is hidden; return the covers, which can be written until what is given below them is there."""
        if not hidden:
            return []
        covers = []
        empty = f"{self._base}/.hidden"
        os.close(os.open(empty, os.O_CREAT | os.O_WRONLY, 0))
        for path in hidden:
            target = self._base + path
            try:
                kind = os.lstat(target).st_mode
            except (FileNotFoundError, NotADirectoryError):
                continue  # it is gone, or below what is hidden already
            if stat.S_ISDIR(kind):
                holds_given = any(each.startswith(f"{path}/") for each in given)
                size = COVER_OF_GIVEN if holds_given else COVER
                mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, size)
                covers.append(target)
            else:
                _cover_file(empty, target)
        os.unlink(empty)
        return covers

    def _give(self, path: str, text: str) -> None:
        target = self._base + path
        self._mkdir(os.path.dirname(path))  # noqa: PTH120
        if os.path.islink(target):  # noqa: PTH114
            raise SandboxError(f"{path} is a link; a file cannot be put in its place")
        if os.path.exists(target):  # noqa: PTH110
            source = f"{self._base}/.given"
            _write(source, text)
            mount(source, target, None, MS_BIND)
            os.unlink(source)
        else:
            _write(target, text)

    def _make_devices(self) -> None:
        self._mkdir("/dev")
        for name in DEVICES:
            target = f"{self._base}/dev/{name}"
            if os.path.exists(f"/dev/{name}"):  # noqa: PTH110
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
                mount(f"/dev/{name}", target, None, MS_BIND)
        for name, link in LINKS.items():
            os.symlink(link, f"{self._base}/dev/{name}")  # noqa: PTH211
        self._mkdir("/dev/shm")  # noqa: S108

    def _make_proc(self) -> None:
        self._mkdir("/proc")
        proc = f"{self._base}/proc"
        try:
            mount("proc", proc, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
            self.own_proc = True
        except SandboxError:
            # In a container whose /proc is partly covered, the kernel refuses a whole one. Landlock still forbids
            # to look into processes of others there.
            mount("/proc", proc, None, MS_BIND | MS_REC)
        if self.own_proc:
            self.memfd_exec_off = _write_switch(f"{proc}/sys/vm/memfd_noexec", b"1")
        for name in SWITCHES:
            path = f"{proc}/{name}"
            if os.path.exists(path):  # noqa: PTH110
                mount(path, path, None, MS_BIND | MS_REC)
                set_mount_attributes(path, ATTR_RDONLY)
        for name in TELLING:
            if os.path.exists(f"{proc}/{name}"):  # noqa: PTH110
                mount(f"{self._base}/dev/null", f"{proc}/{name}", None, MS_BIND)


def _cover_file(empty: str, target: str) -> None:
    # By descriptor, so that of a link the link itself is covered: without it, the next start would not know that
    # what it leads to is hidden.
    handle = os.open(target, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    mount(empty, f"/proc/self/fd/{handle}", None, MS_BIND)
    os.close(handle)
    set_mount_attributes(target, ATTR_RDONLY)


def _open(path: str) -> int:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxError(f"opening {path}: {error.strerror}") from error
    # Somebody may have put a link in its place since the profile was read.
    if os.readlink(f"/proc/self/fd/{handle}") != path:  # noqa: PTH115
        raise SandboxError(f"{path} is another file than a moment ago")
    return handle


def _write(path: str, text: str) -> None:
    # Never through a link: it would lead to a file of the host.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with open(handle, "w") as file:  # noqa: PTH123  pathlib is slow to import
        file.write(text)


def _write_switch(path: str, value: bytes) -> bool:
    try:
        with open(path, "wb", buffering=0) as file:  # noqa: PTH123
            file.write(value)
    except OSError:
        return False
    return True
