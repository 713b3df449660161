"""Resolves the paths that a supervised program gives, to objects that we hold.

A path is copied from the program's memory and resolved from the program's root folder, by the kernel and in one step.
Links of /proc, which lead to the objects of any process, are not followed; the program's own are resolved by number.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from typing import TYPE_CHECKING, Final

from proxy.sandbox.notify_kernel import IN_ROOT, NO_MAGIC_LINKS, openat2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.sandbox.notify_kernel import Listener, Question

AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x1000
O_PATH: Final = getattr(os, "O_PATH", 0)
RESOLVED: Final = IN_ROOT | NO_MAGIC_LINKS
# About the program itself. `mem` is not among them, nor the links `exe`, `cwd` and `root`.
OWN: Final = re.compile(
    r"(?:task/[0-9]+/)?(?:maps|smaps|smaps_rollup|status|stat|statm|cgroup|mountinfo|mounts|limits|cmdline|auxv|comm|"
    r"environ|io|sched|oom_score|oom_score_adj|fd|fdinfo|task|uid_map|gid_map|net|)/?"
)
_SELF: Final = re.compile(r"/(?:proc/(?:self|thread-self)(?:/|$)|dev/(?:fd/|stdin$|stdout$|stderr$))(.*)", re.DOTALL)
_STREAMS: Final = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_UMASK: Final = re.compile(rb"^Umask:\s*([0-7]+)$", re.MULTILINE)


class DeniedError(Exception):
    """The program may not do that. `path` is the real location, where there is one."""

    def __init__(self, path: str | None, number: int = errno.EACCES) -> None:
        super().__init__(path)
        self.path, self.number = path, number


class PathResolver:
    """Resolves for one server, whose root folder is `root`. `paths` are those of the call that is carried out."""

    def __init__(self, listener: Listener, root: int) -> None:
        self._listener = listener
        self._root = root
        self.paths: list[str] = []

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
    def object(self, question: Question, folder: int, address: int, flags: int = 0) -> Iterator[tuple[int, str]]:
        """Give the object that a path leads to, held by our descriptor, and its location."""
        follow = not flags & AT_SYMLINK_NOFOLLOW
        if not address or (flags & AT_EMPTY_PATH and not self._listener.read_path(question, address)):
            if folder == AT_FDCWD:
                raise OSError(errno.EFAULT, "")
            descriptor = self._own_descriptor(question, folder)
        else:
            descriptor = self._find(question, self._absolute(question, folder, address), follow=follow)
        try:
            location = location_of(descriptor)
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

    @contextlib.contextmanager
    def parent(self, question: Question, folder: int, address: int) -> Iterator[tuple[int, str, str]]:
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
            location = f"{location_of(descriptor).rstrip('/')}/{name}"
            self.paths.append(location)
            yield descriptor, name, location
        finally:
            os.close(descriptor)


def location_of(descriptor: int) -> str:
    """Return where an object that we hold lies."""
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115


def umask_of(question: Question) -> int:
    """Return the mode bits that the program does not want in what it makes."""
    with open(f"/proc/{question.thread}/status", "rb") as file:  # noqa: PTH123
        found = _UMASK.search(file.read(512))
    if found is None:
        raise OSError(errno.EACCES, "")
    return int(found[1], 8)
