"""Carries out the system calls that name files, on behalf of a supervised program.

No check-then-use: a path is copied from the program once and resolved to an object that we hold. The decision is on
that object's location, and what the program gets, or what is changed, is that object. Neither a path that changes in
memory nor a link that changes on the disk makes a difference after that.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import operator
import os
import re
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.sandbox.notify_filter import FILES, REFUSED, USERS, this_machine
from proxy.sandbox.notify_paths import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    AT_SYMLINK_NOFOLLOW,
    OWN,
    DeniedError,
    PathResolver,
    umask_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxy.sandbox.file_scope import FileScope
    from proxy.sandbox.notify_kernel import Listener, Question

AT_REMOVEDIR, AT_SYMLINK_FOLLOW = 0x200, 0x400
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
O_TMPFILE: Final = getattr(os, "O_TMPFILE", 0)
CREATES: Final = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT
OPENING: Final = frozenset({"open", "openat", "creat"})
MAX_TRIES: Final = 8
MAX_MADE: Final = 4096
DEVICES: Final = frozenset(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
MACHINE: Final = re.compile(
    r"/proc/(?:cpuinfo|meminfo|stat|version|uptime|loadavg|filesystems|mounts|cmdline|"
    r"sys/(?:vm|kernel|fs|net)/[a-z0-9_./-]+)"
)
# Which function carries a call out, and from which arguments: a number; one that is a descriptor (`f`); the working
# folder; or a constant (`=`).
CALLS: Final = {
    "open": ("open", "cwd 0 1 2"),
    "openat": ("open", "f0 1 2 3"),
    "creat": ("open", f"cwd 0 ={CREATES} 1"),
    "unlink": ("unlink", "cwd 0 =0"),
    "rmdir": ("unlink", f"cwd 0 ={AT_REMOVEDIR}"),
    "unlinkat": ("unlink", "f0 1 2"),
    "mkdir": ("make_folder", "cwd 0 1"),
    "mkdirat": ("make_folder", "f0 1 2"),
    "mknod": ("make_node", "cwd 0 1"),
    "mknodat": ("make_node", "f0 1 2"),
    "symlink": ("link_to", "0 cwd 1"),
    "symlinkat": ("link_to", "0 f1 2"),
    "rename": ("rename", "cwd 0 cwd 1 =0"),
    "renameat": ("rename", "f0 1 f2 3 =0"),
    "renameat2": ("rename", "f0 1 f2 3 4"),
    "link": ("hard_link", "cwd 0 cwd 1 =0"),
    "linkat": ("hard_link", "f0 1 f2 3 4"),
    "truncate": ("truncate", "cwd 0 1"),
    "chmod": ("chmod", "cwd 0 1 =0"),
    "fchmodat": ("chmod", "f0 1 2 =0"),
    "fchmodat2": ("chmod", "f0 1 2 3"),
    "chown": ("chown", "cwd 0 f1 f2 =0"),
    "lchown": ("chown", f"cwd 0 f1 f2 ={AT_SYMLINK_NOFOLLOW}"),
    "fchownat": ("chown", "f0 1 f2 f3 4"),
    "utimensat": ("set_times", "f0 1 2 3"),
}


class Opened(NamedTuple):
    descriptor: int  # ours, to be handed in and closed
    close_on_exec: bool


class Act(NamedTuple):
    """A system call as it was carried out: its name, the thread, the paths, flags, and how it ended."""

    call: str
    thread: int
    paths: tuple[str, ...]
    flags: int
    error: int  # errno, or 0
    denied: bool  # by us, and not by the file system

    @property
    def writes(self) -> bool:
        return self.call not in OPENING or bool(self.flags & WRITES)


class Files:
    """Carries out calls for one server, whose root folder is `root`. One thread uses it."""

    def __init__(self, listener: Listener, root: int) -> None:
        self._listener = listener
        self._resolver = PathResolver(listener, root)
        self._made: set[str] = set()  # by the server, beside what was named
        self.scope: FileScope | None = None
        self.flags = 0  # of the call that is carried out
        numbers = this_machine().numbers
        known = (*FILES, *REFUSED, *USERS, "clone", "unshare")
        self._names = {numbers[name]: name for name in known if name in numbers}
        self._handlers: dict[str, tuple[Callable[..., Opened | int], Callable[[Question], list[int]]]] = {
            name: (getattr(self, f"_{function}"), _picker(picks)) for name, (function, picks) in CALLS.items()
        }

    @property
    def paths(self) -> tuple[str, ...]:
        """The real locations that the last call was about, as far as it came."""
        return tuple(self._resolver.paths)

    def name(self, question: Question) -> str:
        return self._names.get(question.number, str(question.number))

    def carry_out(self, question: Question) -> Opened | int:
        """Do what was asked. Raises OSError as the kernel would, DeniedError, or GoneError where nobody waits."""
        self._resolver.paths, self.flags = [], 0
        name = self.name(question)
        if name in self._handlers:
            function, pick = self._handlers[name]
            return function(question, *pick(question))
        if name in REFUSED or name in ("clone", "unshare"):
            # io_uring as if the kernel had none: programs fall back to calls that we see.
            raise DeniedError(None, errno.ENOSYS if name.startswith("io_uring") else errno.EPERM)
        if name in USERS:
            raise OSError(errno.EPERM, "")
        # openat2 with conditions of its own, and rare ways to change attributes: programs fall back from both.
        raise OSError(errno.EOPNOTSUPP if "attr" in name else errno.ENOSYS, "")

    def _require(self, location: str, *, write: bool) -> None:
        assert self.scope is not None
        if not self.scope.permits(location, write=write) and not self._is_made(location):
            raise DeniedError(location)

    def _is_made(self, location: str) -> bool:
        """Return whether the server made a file, or a folder that it is in."""
        while self._made and location not in self._made and location != "/":
            location = os.path.dirname(location)  # noqa: PTH120
        return location in self._made

    def _open(self, question: Question, folder: int, address: int, flags: int, mode: int) -> Opened:
        self.flags = flags = flags & 0xFFFFFFFF
        for _ in range(MAX_TRIES):
            try:
                return self._open_existing(question, folder, address, flags, mode)
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
            self._resolver.paths.clear()
            try:
                return self._create(question, folder, address, flags, mode)
            except FileExistsError:  # made in between, or a link that leads nowhere
                self._resolver.paths.clear()
        raise DeniedError(None)

    def _open_existing(self, question: Question, folder: int, address: int, flags: int, mode: int) -> Opened:
        unfollowed = AT_SYMLINK_NOFOLLOW if flags & os.O_NOFOLLOW or (flags & os.O_EXCL and flags & os.O_CREAT) else 0
        with self._resolver.object(question, folder, address, unfollowed) as (descriptor, location):
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise OSError(errno.EEXIST, "")
            kind = os.fstat(descriptor).st_mode
            if stat.S_ISLNK(kind):
                raise OSError(errno.ELOOP, "")
            self._require_openable(question, kind, location, flags)
            if flags & O_TMPFILE == O_TMPFILE:
                mode &= ~umask_of(question)
            wanted = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
            return _reopen(descriptor, wanted, mode)

    def _require_openable(self, question: Question, kind: int, location: str, flags: int) -> None:
        write = bool(flags & WRITES & ~os.O_CREAT) or flags & O_TMPFILE == O_TMPFILE
        if location.startswith("/proc/"):
            own = location.removeprefix(f"/proc/{question.thread}/")
            known = OWN.fullmatch(own) if own != location else MACHINE.fullmatch(location)
            if write or known is None:
                raise DeniedError(location)
        elif stat.S_ISREG(kind) or stat.S_ISDIR(kind):
            try:
                self._require(location, write=write)
            except DeniedError:
                assert self.scope is not None
                if stat.S_ISDIR(kind) and not write and self.scope.permits_listing(location):
                    return
                # A search for modules along a path: refused, and nothing to tell anybody about.
                if stat.S_ISDIR(kind) and not write and self.scope.leads_on(location):
                    raise OSError(errno.EACCES, "") from None
                raise
        elif not (stat.S_ISCHR(kind) and location in DEVICES) and not location.startswith("pipe:["):
            # A device; or a named pipe or socket, behind which another program may be.
            raise DeniedError(location)

    def _create(self, question: Question, folder: int, address: int, flags: int, mode: int) -> Opened:
        with self._resolver.parent(question, folder, address) as (parent, name, location):
            own = self._require_new(location)
            mode &= ~umask_of(question) & 0o7777
            # One name, exclusively: it is made in the folder that we hold, and no link is followed.
            wanted = flags | os.O_EXCL | os.O_CREAT | os.O_NOCTTY | os.O_CLOEXEC
            descriptor = os.open(name, wanted, mode, dir_fd=parent)
            if own:
                self._remember(location)
            return Opened(descriptor, bool(flags & os.O_CLOEXEC))

    def _require_new(self, location: str) -> bool:
        """Return whether a file that is to be made is open only because the server makes it. Raises DeniedError."""
        assert self.scope is not None
        if self.scope.permits(location, write=True):
            return False
        if not self._is_made(location) and not self.scope.permits_new(location):
            raise DeniedError(location)
        return True

    def _remember(self, location: str) -> None:
        if len(self._made) >= MAX_MADE:
            self._made.clear()
        self._made.add(location)

    def _unlink(self, question: Question, folder: int, address: int, flags: int) -> int:
        self.flags = flags
        with self._resolver.parent(question, folder, address) as (parent, name, location):
            self._require(location, write=True)
            (os.rmdir if flags & AT_REMOVEDIR else os.unlink)(name, dir_fd=parent)
            self._made.discard(location)
        return 0

    def _make_folder(self, question: Question, folder: int, address: int, mode: int) -> int:
        with self._resolver.parent(question, folder, address) as (parent, name, location):
            own = self._require_new(location)
            os.mkdir(name, mode & 0o7777 & ~umask_of(question), dir_fd=parent)
            if own:
                self._remember(location)
        return 0

    def _make_node(self, question: Question, folder: int, address: int, mode: int) -> int:
        with self._resolver.parent(question, folder, address) as (parent, name, location):
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise DeniedError(location, errno.EPERM)
            self._require(location, write=True)
            os.mknod(name, stat.S_IFREG | (mode & 0o7777 & ~umask_of(question)), dir_fd=parent)
        return 0

    def _link_to(self, question: Question, target: int, folder: int, address: int) -> int:
        text = self._listener.read_path(question, target)
        with self._resolver.parent(question, folder, address) as (parent, name, location):
            self._require(location, write=True)
            os.symlink(text, os.fsencode(name), dir_fd=parent)
        return 0

    def _rename(self, question: Question, old: int, old_address: int, new: int, new_address: int, flags: int) -> int:
        self.flags = flags
        with (
            self._resolver.parent(question, old, old_address) as (source, name, location),
            self._resolver.parent(question, new, new_address) as (target, new_name, new_location),
        ):
            for each in (location, new_location):
                self._require(each, write=True)
            _renameat2(source, name, target, new_name, flags)
            self._made.discard(location)
        return 0

    def _hard_link(self, question: Question, old: int, old_address: int, new: int, new_address: int, flags: int) -> int:
        self.flags = flags
        found = flags & AT_EMPTY_PATH | (0 if flags & AT_SYMLINK_FOLLOW else AT_SYMLINK_NOFOLLOW)
        with (
            self._resolver.object(question, old, old_address, found) as (descriptor, location),
            self._resolver.parent(question, new, new_address) as (target, name, new_location),
        ):
            # Else a link inside of a named folder would make a file that was not named reachable by it.
            for each in (location, new_location):
                self._require(each, write=True)
            os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=target, follow_symlinks=True)
        return 0

    @contextlib.contextmanager
    def _changed(self, question: Question, folder: int, address: int, flags: int = 0) -> Iterator[str]:
        """Give a path of ours to an object whose attributes may be changed."""
        self.flags = flags
        with self._resolver.object(question, folder, address, flags) as (descriptor, location):
            self._require(location, write=True)
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise OSError(errno.EOPNOTSUPP, "")
            yield f"/proc/self/fd/{descriptor}"

    def _truncate(self, question: Question, folder: int, address: int, length: int) -> int:
        with self._changed(question, folder, address) as path:
            os.truncate(path, ctypes.c_long(length).value)
        return 0

    def _chmod(self, question: Question, folder: int, address: int, mode: int, flags: int) -> int:
        with self._changed(question, folder, address, flags) as path:
            os.chmod(path, mode & 0o7777)  # noqa: PTH101
        return 0

    def _chown(self, question: Question, folder: int, address: int, user: int, group: int, flags: int) -> int:
        with self._changed(question, folder, address, flags) as path:
            os.chown(path, user, group)
        return 0

    def _set_times(self, question: Question, folder: int, address: int, times: int, flags: int) -> int:
        raw = self._listener.read(question, times, 32) if times else None
        with self._changed(question, folder, address, flags) as path:
            _utimensat(path, raw)
        return 0


def _signed(value: int) -> int:
    return ctypes.c_int(value & 0xFFFFFFFF).value


def _picker(picks: str) -> Callable[[Question], list[int]]:
    """Return the function that takes a handler's arguments from a question."""
    steps = [_step(word) for word in picks.split()]
    return lambda question: [step(question.arguments) for step in steps]


def _step(word: str) -> Callable[[tuple[int, ...]], int]:
    if word == "cwd":
        return lambda _: AT_FDCWD
    if word.startswith("="):
        constant = int(word[1:])
        return lambda _: constant
    if word.startswith("f"):
        at = int(word[1:])
        return lambda arguments: _signed(arguments[at])
    return operator.itemgetter(int(word))


def _reopen(descriptor: int, flags: int, mode: int) -> Opened:
    """Open the object that a descriptor holds, once more, for what it is wanted for."""
    # Without waiting: a lease that the program holds on its file would stop us, and with us every other call.
    path = f"/proc/self/fd/{descriptor}"
    opened = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, mode & 0o7777)
    if not flags & os.O_NONBLOCK:
        os.set_blocking(opened, True)
    return Opened(opened, bool(flags & os.O_CLOEXEC))


_LIBC = ctypes.CDLL(None, use_errno=True)


def _renameat2(source: int, name: str, target: int, new_name: str, flags: int) -> None:
    if flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE):
        raise OSError(errno.EINVAL, "")
    if _LIBC.renameat2(source, os.fsencode(name), target, os.fsencode(new_name), ctypes.c_uint(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _utimensat(path: str, times: bytes | None) -> None:
    if _LIBC.utimensat(AT_FDCWD, os.fsencode(path), times, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
