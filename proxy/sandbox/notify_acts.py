"""Carries out the system calls that name files, on behalf of a supervised program.

No check-then-use: a path is copied from the program once and resolved to an object that we hold. The decision is on
that object's location, and what the program gets, or what is changed, is that object. Neither a path that changes in
memory nor a link that changes on the disk makes a difference after that.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.sandbox.notify_filter import FILES, REFUSED, this_machine
from proxy.sandbox.notify_kernel import IN_ROOT, NO_MAGIC_LINKS, openat2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxy.sandbox.file_scope import FileScope
    from proxy.sandbox.notify_kernel import Listener, Question

AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x200, 0x400, 0x1000
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
O_TMPFILE: Final = getattr(os, "O_TMPFILE", 0)
O_PATH: Final = getattr(os, "O_PATH", 0)
CREATES: Final = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT
RESOLVED: Final = IN_ROOT | NO_MAGIC_LINKS
MAX_TRIES: Final = 8
MAX_MADE: Final = 4096
DEVICES: Final = frozenset(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
# About the program itself. `mem` is not among them, nor the links `exe`, `cwd` and `root`.
OWN: Final = re.compile(
    r"(?:task/[0-9]+/)?(?:maps|smaps|smaps_rollup|status|stat|statm|cgroup|mountinfo|mounts|limits|cmdline|auxv|comm|"
    r"environ|io|sched|oom_score|oom_score_adj|fd|fdinfo|task|uid_map|gid_map|net|)/?"
)
MACHINE: Final = re.compile(
    r"/proc/(?:cpuinfo|meminfo|stat|version|uptime|loadavg|filesystems|mounts|cmdline|"
    r"sys/(?:vm|kernel|fs|net)/[a-z0-9_./-]+)"
)
_SELF: Final = re.compile(r"/(?:proc/(?:self|thread-self)(?:/|$)|dev/(?:fd/|stdin$|stdout$|stderr$))(.*)", re.DOTALL)
_STREAMS: Final = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_UMASK: Final = re.compile(rb"^Umask:\s*([0-7]+)$", re.MULTILINE)


class DeniedError(Exception):
    """The program may not do that. `path` is the real location, where there is one."""

    def __init__(self, path: str | None, number: int = errno.EACCES) -> None:
        super().__init__(path)
        self.path, self.number = path, number


class Opened(NamedTuple):
    descriptor: int  # ours, to be handed in and closed
    close_on_exec: bool


class Act(NamedTuple):
    """A system call as it was carried out: its name, the thread, the paths, flags, and how it ended."""

    call: str
    thread: int
    paths: tuple[str, ...]
    flags: int
    value: int  # what the program got
    error: int  # or the errno
    denied: bool  # by us, and not by the file system

    @property
    def writes(self) -> bool:
        return self.call not in OPENING or bool(self.flags & WRITES)


OPENING: Final = frozenset({"open", "openat", "creat"})


class Files:
    """Carries out calls for one server, whose root folder is `root`. One thread uses it."""

    def __init__(self, listener: Listener, root: int) -> None:
        self._listener = listener
        self._root = root
        self._made: set[str] = set()  # by the server, beside what was named
        self.scope: FileScope | None = None
        self.paths: list[str] = []  # of the call that is carried out
        self.flags = 0
        numbers = this_machine().numbers
        self._names = {numbers[name]: name for name in (*FILES, *REFUSED, "clone", "unshare") if name in numbers}
        self._handlers: dict[str, Callable[[Question], Opened | int]] = {
            "open": lambda asked: self._open(asked, AT_FDCWD, *asked.arguments[:3]),
            "openat": lambda asked: self._open(asked, _signed(asked.arguments[0]), *asked.arguments[1:4]),
            "creat": lambda asked: self._open(asked, AT_FDCWD, asked.arguments[0], CREATES, asked.arguments[1]),
            "unlink": lambda asked: self._unlink(asked, AT_FDCWD, asked.arguments[0], 0),
            "rmdir": lambda asked: self._unlink(asked, AT_FDCWD, asked.arguments[0], AT_REMOVEDIR),
            "unlinkat": lambda asked: self._unlink(asked, _signed(asked.arguments[0]), *asked.arguments[1:3]),
            "mkdir": lambda asked: self._make_folder(asked, AT_FDCWD, *asked.arguments[:2]),
            "mkdirat": lambda asked: self._make_folder(asked, _signed(asked.arguments[0]), *asked.arguments[1:3]),
            "mknod": lambda asked: self._make_node(asked, AT_FDCWD, *asked.arguments[:2]),
            "mknodat": lambda asked: self._make_node(asked, _signed(asked.arguments[0]), *asked.arguments[1:3]),
            "symlink": lambda asked: self._link_to(asked, asked.arguments[0], AT_FDCWD, asked.arguments[1]),
            "symlinkat": lambda asked: self._link_to(
                asked, asked.arguments[0], _signed(asked.arguments[1]), asked.arguments[2]
            ),
            "rename": lambda asked: self._rename(asked, AT_FDCWD, asked.arguments[0], AT_FDCWD, asked.arguments[1], 0),
            "renameat": lambda asked: self._rename(asked, *_two(asked), 0),
            "renameat2": lambda asked: self._rename(asked, *_two(asked), asked.arguments[4]),
            "link": lambda asked: self._hard_link(
                asked, AT_FDCWD, asked.arguments[0], AT_FDCWD, asked.arguments[1], 0
            ),
            "linkat": lambda asked: self._hard_link(asked, *_two(asked), asked.arguments[4]),
            "truncate": self._truncate,
            "chmod": lambda asked: self._chmod(asked, AT_FDCWD, *asked.arguments[:2], 0),
            "fchmodat": lambda asked: self._chmod(asked, _signed(asked.arguments[0]), *asked.arguments[1:3], 0),
            "fchmodat2": lambda asked: self._chmod(asked, _signed(asked.arguments[0]), *asked.arguments[1:4]),
            "chown": lambda asked: self._chown(asked, AT_FDCWD, *asked.arguments[:3], 0),
            "lchown": lambda asked: self._chown(asked, AT_FDCWD, *asked.arguments[:3], AT_SYMLINK_NOFOLLOW),
            "fchownat": lambda asked: self._chown(asked, _signed(asked.arguments[0]), *asked.arguments[1:5]),
            "utimensat": self._set_times,
        }

    def name(self, question: Question) -> str:
        return self._names.get(question.number, str(question.number))

    def carry_out(self, question: Question) -> Opened | int:
        """Do what was asked. Raises OSError as the kernel would, DeniedError, or GoneError where nobody waits."""
        self.paths, self.flags = [], 0
        name = self.name(question)
        handler = self._handlers.get(name)
        if handler is not None:
            return handler(question)
        if name in REFUSED or name in ("clone", "unshare"):
            # io_uring as if the kernel had none: programs fall back to calls that we see.
            raise DeniedError(None, errno.ENOSYS if name.startswith("io_uring") else errno.EPERM)
        # openat2 with conditions of its own, and rare ways to change attributes: programs fall back from both.
        raise OSError(errno.EOPNOTSUPP if "attr" in name else errno.ENOSYS, "")

    def _absolute(self, question: Question, folder: int, address: int) -> str:
        """Return the path at an address, from the root. What it leads to is decided on later, as an object."""
        path = os.fsdecode(self._listener.read_path(question, address))
        if not path:
            raise OSError(errno.ENOENT, "")
        if path[0] != "/":
            path = f"{self._folder(question, folder)}/{path}"
        # What was read belongs to the one that asked, and not to a later process of the same number.
        self._listener.check_waits(question)
        return path

    def _folder(self, question: Question, folder: int) -> str:
        where = "cwd" if folder == AT_FDCWD else f"fd/{folder}"
        try:
            found = os.readlink(f"/proc/{question.thread}/{where}")  # noqa: PTH115
        except FileNotFoundError:
            raise OSError(errno.EBADF, "") from None
        if not found.startswith("/"):
            raise OSError(errno.ENOTDIR, "")
        return found

    @contextlib.contextmanager
    def _object(self, question: Question, folder: int, address: int, flags: int = 0) -> Iterator[tuple[int, str]]:
        """Give the object that a path leads to, held by our descriptor, and its location."""
        follow = not flags & AT_SYMLINK_NOFOLLOW
        if not address or (flags & AT_EMPTY_PATH and not self._listener.read_path(question, address)):
            if folder == AT_FDCWD:
                raise OSError(errno.EFAULT, "")
            descriptor = self._own_descriptor(question, folder)
        else:
            descriptor = self._find(question, self._absolute(question, folder, address), follow=follow)
        try:
            location = _location(descriptor)
            self.paths.append(location)
            yield descriptor, location
        finally:
            os.close(descriptor)

    def _find(self, question: Question, path: str, *, follow: bool) -> int:
        own = _SELF.fullmatch(os.path.normpath(path)) if path.startswith(("/proc", "/dev", "//")) else None
        if own is not None:
            number = _STREAMS.get(own[0], own[1].removeprefix("fd/") if own[0] not in _STREAMS else "")
            if str(number).isdecimal() and (own[0].startswith("/dev/") or own[1].startswith("fd/")):
                return self._own_descriptor(question, int(number))
            if OWN.fullmatch(own[1]) is None:
                self.paths.append(own[0])
                raise DeniedError(own[0])
            # By its number: /proc/self is ourselves.
            return os.open(f"/proc/{question.thread}/{own[1]}", O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        flags = O_PATH if follow else O_PATH | os.O_NOFOLLOW
        try:
            return openat2(self._root, os.fsencode(path), flags, RESOLVED)
        except OSError as error:
            self.paths.append(os.path.normpath(path))
            if error.errno in (errno.ELOOP, errno.EXDEV):  # by a link of /proc, to an object of any process
                raise DeniedError(path) from None
            raise

    def _own_descriptor(self, question: Question, number: int) -> int:
        descriptor = os.open(f"/proc/{question.thread}/fd/{number}", O_PATH | os.O_CLOEXEC)
        try:
            self._listener.check_waits(question)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _require(self, location: str, *, write: bool) -> None:
        assert self.scope is not None
        if location not in self._made and not self.scope.permits(location, write=write):
            raise DeniedError(location)

    @contextlib.contextmanager
    def _parent(self, question: Question, folder: int, address: int) -> Iterator[tuple[int, str, str]]:
        """Give the folder of a path, held by our descriptor, the last name, and the location of both together."""
        path = self._absolute(question, folder, address)
        head, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            raise OSError(errno.EINVAL, "")
        try:
            descriptor = openat2(self._root, os.fsencode(head or "/"), O_PATH | os.O_DIRECTORY, RESOLVED)
        except OSError as error:
            self.paths.append(os.path.normpath(path))
            if error.errno in (errno.ELOOP, errno.EXDEV):
                raise DeniedError(path) from None
            raise
        try:
            location = f"{_location(descriptor).rstrip('/')}/{name}"
            self.paths.append(location)
            yield descriptor, name, location
        finally:
            os.close(descriptor)

    def _open(self, question: Question, folder: int, address: int, flags: int, mode: int) -> Opened:
        self.flags = flags = flags & 0xFFFFFFFF
        for _ in range(MAX_TRIES):
            try:
                return self._open_existing(question, folder, address, flags, mode)
            except FileNotFoundError:
                if not flags & os.O_CREAT or flags & O_PATH:
                    raise
            self.paths.clear()
            try:
                return self._create(question, folder, address, flags, mode)
            except FileExistsError:  # made in between, or a link that leads nowhere
                self.paths.clear()
        raise DeniedError(None)

    def _open_existing(self, question: Question, folder: int, address: int, flags: int, mode: int) -> Opened:
        unfollowed = AT_SYMLINK_NOFOLLOW if flags & os.O_NOFOLLOW or (flags & os.O_EXCL and flags & os.O_CREAT) else 0
        with self._object(question, folder, address, unfollowed) as (descriptor, location):
            if flags & O_PATH:
                return self._hold(descriptor, location, flags)
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise OSError(errno.EEXIST, "")
            kind = os.fstat(descriptor).st_mode
            if stat.S_ISLNK(kind):
                raise OSError(errno.ELOOP, "")
            self._require_openable(question, kind, location, flags)
            if flags & O_TMPFILE == O_TMPFILE:
                mode &= ~_umask(question)
            wanted = flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
            return _reopen(descriptor, wanted, mode)

    def _hold(self, descriptor: int, location: str, flags: int) -> Opened:
        """Give a descriptor that can only name its object, as stat does; not one of /proc's links."""
        if location.startswith("/proc/") and MACHINE.fullmatch(location) is None:
            raise DeniedError(location)
        if flags & os.O_DIRECTORY and not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOTDIR, "")
        return Opened(os.dup(descriptor), bool(flags & os.O_CLOEXEC))

    def _require_openable(self, question: Question, kind: int, location: str, flags: int) -> None:
        write = bool(flags & WRITES & ~os.O_CREAT) or flags & O_TMPFILE == O_TMPFILE
        if location.startswith("/proc/"):
            own = location.removeprefix(f"/proc/{question.thread}/")
            known = OWN.fullmatch(own) if own != location else MACHINE.fullmatch(location)
            if write or known is None:
                raise DeniedError(location)
        elif stat.S_ISREG(kind) or stat.S_ISDIR(kind):
            self._require(location, write=write)
        elif not (stat.S_ISCHR(kind) and location in DEVICES) and not location.startswith("pipe:["):
            # A device; or a named pipe or socket, behind which another program may be.
            raise DeniedError(location)

    def _create(self, question: Question, folder: int, address: int, flags: int, mode: int) -> Opened:
        with self._parent(question, folder, address) as (parent, name, location):
            beside = self._require_new(location)
            mode &= ~_umask(question) & 0o7777
            # One name, exclusively: it is made in the folder that we hold, and no link is followed.
            wanted = flags | os.O_EXCL | os.O_CREAT | os.O_NOCTTY | os.O_CLOEXEC
            descriptor = os.open(name, wanted, mode, dir_fd=parent)
            if beside:
                self._remember(location)
            return Opened(descriptor, bool(flags & os.O_CLOEXEC))

    def _require_new(self, location: str) -> bool:
        """Return whether a file that is to be made stands only beside what was named. Raises DeniedError."""
        assert self.scope is not None
        if self.scope.permits(location, write=True):
            return False
        if not self.scope.permits_beside(location):
            raise DeniedError(location)
        return True

    def _remember(self, location: str) -> None:
        if len(self._made) >= MAX_MADE:
            self._made.clear()
        self._made.add(location)

    def _unlink(self, question: Question, folder: int, address: int, flags: int) -> int:
        self.flags = flags
        with self._parent(question, folder, address) as (parent, name, location):
            self._require(location, write=True)
            (os.rmdir if flags & AT_REMOVEDIR else os.unlink)(name, dir_fd=parent)
            self._made.discard(location)
        return 0

    def _make_folder(self, question: Question, folder: int, address: int, mode: int) -> int:
        with self._parent(question, folder, address) as (parent, name, location):
            self._require(location, write=True)
            os.mkdir(name, mode & 0o7777 & ~_umask(question), dir_fd=parent)
        return 0

    def _make_node(self, question: Question, folder: int, address: int, mode: int) -> int:
        with self._parent(question, folder, address) as (parent, name, location):
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise DeniedError(location, errno.EPERM)
            self._require(location, write=True)
            os.mknod(name, stat.S_IFREG | (mode & 0o7777 & ~_umask(question)), dir_fd=parent)
        return 0

    def _link_to(self, question: Question, target: int, folder: int, address: int) -> int:
        text = self._listener.read_path(question, target)
        with self._parent(question, folder, address) as (parent, name, location):
            self._require(location, write=True)
            os.symlink(text, os.fsencode(name), dir_fd=parent)
        return 0

    def _rename(self, question: Question, old: int, old_address: int, new: int, new_address: int, flags: int) -> int:
        self.flags = flags
        with (
            self._parent(question, old, old_address) as (source, name, location),
            self._parent(question, new, new_address) as (target, new_name, new_location),
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
            self._object(question, old, old_address, found) as (descriptor, location),
            self._parent(question, new, new_address) as (target, name, new_location),
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
        with self._object(question, folder, address, flags) as (descriptor, location):
            self._require(location, write=True)
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise OSError(errno.EOPNOTSUPP, "")
            yield f"/proc/self/fd/{descriptor}"

    def _truncate(self, question: Question) -> int:
        with self._changed(question, AT_FDCWD, question.arguments[0]) as path:
            os.truncate(path, ctypes.c_long(question.arguments[1]).value)
        return 0

    def _chmod(self, question: Question, folder: int, address: int, mode: int, flags: int) -> int:
        with self._changed(question, folder, address, flags) as path:
            os.chmod(path, mode & 0o7777)  # noqa: PTH101
        return 0

    def _chown(self, question: Question, folder: int, address: int, user: int, group: int, flags: int) -> int:
        with self._changed(question, folder, address, flags) as path:
            os.chown(path, _signed(user), _signed(group))
        return 0

    def _set_times(self, question: Question) -> int:
        folder, address, times, flags = question.arguments[:4]
        raw = self._listener.read(question, times, 32) if times else None
        with self._changed(question, _signed(folder), address, flags) as path:
            _utimensat(path, raw)
        return 0


def _signed(value: int) -> int:
    return ctypes.c_int(value & 0xFFFFFFFF).value


def _two(question: Question) -> tuple[int, int, int, int]:
    old, old_address, new, new_address = question.arguments[:4]
    return _signed(old), old_address, _signed(new), new_address


def _location(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115


def _umask(question: Question) -> int:
    with open(f"/proc/{question.thread}/status", "rb") as file:  # noqa: PTH123
        found = _UMASK.search(file.read(512))
    if found is None:
        raise OSError(errno.EACCES, "")
    return int(found[1], 8)


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
