"""Turns system calls into observations: which file, which peer, which program. Pure, and never raises for odd lines.

Only what reaches outside of the program counts: no pipes, no memory, no
terminals. Opening a file to read and write is not writing it: programs open so and never write.
"""

from __future__ import annotations

import re
from functools import cache, partial
from typing import TYPE_CHECKING

from proxy.trace.arguments import Descriptor, descriptor, flags, quoted, returned, split_arguments, words
from proxy.trace.capability import Capability, Observation, text
from proxy.trace.process_tree import STARTERS, Process, ProcessTree
from proxy.trace.sockets import Made, Make, SocketTable
from proxy.trace.strace import Ended, Event, Superseded, Syscall, Unfinished

if TYPE_CHECKING:
    from collections.abc import Callable


OPENERS = {"open": 0, "creat": 0, "openat": 1, "openat2": 1}
WRITERS = frozenset({"write", "pwrite64", "writev", "pwritev", "pwritev2"})
# Calls that change the file of a descriptor: their first argument, or for those that copy the one at this position.
CHANGERS = ("ftruncate", "fallocate", "fchmod", "fchown", "fsetxattr")
COPIERS = {"sendfile": 0, "copy_file_range": 2, "splice": 2, "tee": 1, "vmsplice": 0}
# Calls that take paths: the effect, the path's position, and whether a folder's descriptor precedes it.
PATHS: dict[str, tuple[tuple[Capability, str, int, bool], ...]] = {
    "unlink": ((Capability.FS_DELETE, "unlink", 0, False),),
    "unlinkat": ((Capability.FS_DELETE, "unlink", 1, True),),
    "rmdir": ((Capability.FS_DELETE, "rmdir", 0, False),),
    "rename": ((Capability.FS_DELETE, "rename", 0, False), (Capability.FS_WRITE, "rename", 1, False)),
    "renameat": ((Capability.FS_DELETE, "rename", 1, True), (Capability.FS_WRITE, "rename", 3, True)),
    "renameat2": ((Capability.FS_DELETE, "rename", 1, True), (Capability.FS_WRITE, "rename", 3, True)),
    "mkdir": ((Capability.FS_WRITE, "mkdir", 0, False),),
    "mkdirat": ((Capability.FS_WRITE, "mkdir", 1, True),),
    "mknod": ((Capability.FS_WRITE, "mknod", 0, False),),
    "mknodat": ((Capability.FS_WRITE, "mknod", 1, True),),
    "link": ((Capability.FS_READ, "link", 0, False), (Capability.FS_WRITE, "link", 1, False)),
    "linkat": ((Capability.FS_READ, "link", 1, True), (Capability.FS_WRITE, "link", 3, True)),
    "symlink": ((Capability.FS_WRITE, "symlink", 1, False),),
    "symlinkat": ((Capability.FS_WRITE, "symlink", 2, True),),
    "truncate": ((Capability.FS_WRITE, "truncate", 0, False),),
    "chmod": ((Capability.FS_WRITE, "chmod", 0, False),),
    **dict.fromkeys(("fchmodat", "fchmodat2"), ((Capability.FS_WRITE, "chmod", 1, True),)),
    **dict.fromkeys(("chown", "lchown"), ((Capability.FS_WRITE, "chown", 0, False),)),
    "fchownat": ((Capability.FS_WRITE, "chown", 1, True),),
    **dict.fromkeys(("setxattr", "lsetxattr"), ((Capability.FS_WRITE, "setxattr", 0, False),)),
    "inotify_add_watch": ((Capability.FS_READ, "watch", 1, False),),
    "fanotify_mark": ((Capability.FS_READ, "watch", 4, True),),
}
# Calls that ask whether a file is there. Programs make thousands of them: only a probe has them traced.
LOOKS: dict[str, tuple[tuple[Capability, str, int, bool], ...]] = {
    **dict.fromkeys(("stat", "lstat", "access", "readlink"), ((Capability.FS_READ, "look", 0, False),)),
    **dict.fromkeys(
        ("newfstatat", "statx", "faccessat", "faccessat2", "readlinkat"), ((Capability.FS_READ, "look", 1, True),)
    ),
}
# Calls that change the machine, or access other processes.
KERNEL = frozenset(
    {
        *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "bpf", "perf_event_open", "userfaultfd"),
        *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon"),
        *("mount", "umount2", "pivot_root", "chroot", "move_mount", "fsopen", "open_tree", "unshare", "setns"),
        *("keyctl", "add_key", "request_key", "io_uring_setup", "iopl", "ioperm", "settimeofday", "clock_settime"),
        *("sethostname", "setdomainname", "quotactl", "acct", "open_by_handle_at"),
    }
)
# Calls that name a process by a pidfd.
BY_HANDLE = frozenset({"pidfd_send_signal", "pidfd_getfd"})
KILLERS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
SOCKET_CALLS = ("socket", "bind", "listen", "accept", "accept4", "connect", "sendto", "sendmsg", "sendmmsg")
# What strace is asked for: all that is handled here. Not read: tracing it doubles the cost and shows no more
# than open does.
TRACED = (
    *(*OPENERS, *sorted(WRITERS), *CHANGERS, *COPIERS, *PATHS, *SOCKET_CALLS, *sorted(KERNEL), *KILLERS),
    *(*sorted(STARTERS), "execve", "execveat", "memfd_create", "dup", "dup2", "dup3", "chdir", "fchdir", "mmap"),
    "pidfd_open",
)
_MEMORY = (b"/memfd:", b"/dev/shm/", b"/run/shm/")
_NOT_FILES = (b"/memfd:", b"/dev/pts/", b"/dev/fd/", b"/SYSV", b"/anon_hugepage", b"/[aio]", b"/dmabuf:")
_DEVICES = frozenset({b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/tty", b"/dev/random", b"/dev/urandom"})
CREATES = "O_WRONLY|O_CREAT|O_TRUNC"
_plain_opening = re.compile(r'AT_FDCWD<(/[^<>\\]*+)>, "([^"\\]*+)", ([A-Z_|]++)(?:, 0[0-7]*+)?').fullmatch
_OWN_DESCRIPTOR = re.compile(rb"/(?:proc/(?:self|thread-self|[0-9]+)(?:/task/[0-9]+)?|dev)/fd/([0-9]{1,9})")
MAX_HANDLES = 1 << 12
EVERYBODY = -1
FORK = "fork"
_NOT_THERE = frozenset({"ENOENT", "ENOTDIR"})


class Normaliser:
    """Follows one trace. `cwd` is the first program's; writes to `ignored` files, such as logs, do not count.

    With `forks`, a new process is an observation too, with the action `fork`: it tells whose the process is.
    With `searches`, a program that is not there is one too: most are steps of a search of PATH.
    """

    def __init__(
        self,
        cwd: bytes = b"/",
        ignored: frozenset[bytes] = frozenset(),
        *,
        forks: bool = False,
        searches: bool = False,
    ) -> None:
        self.lineage = ProcessTree(cwd)
        self._sockets = SocketTable()
        self._ignored = ignored
        self._forks = forks
        self._searches = searches
        self.group: int | None = None  # the process group of the first program, which it may signal
        self._handlers: dict[str, Callable[[Syscall, list[str], Make], Made]] = {
            **dict.fromkeys(OPENERS, self._opened),
            **dict.fromkeys((*WRITERS, *CHANGERS, *COPIERS), self._written),
            **dict.fromkeys((*PATHS, *LOOKS), self._named),
            **dict.fromkeys(KERNEL, self._asked_kernel),
            **dict.fromkeys(KILLERS, self._signalled),
            **dict.fromkeys(("memfd_create", "dup", "dup2", "dup3", "chdir", "fchdir", "pidfd_open"), self._followed),
            **dict.fromkeys(("execve", "execveat"), self._executed),
            "mmap": self._mapped,
            **self._sockets.handlers,
        }

    def take(self, event: Event) -> list[Observation]:
        if type(event) is Syscall:
            if event.name == "openat" and (seen := self._opened_plainly(event)) is not None:
                return seen
            handler = self._handlers.get(event.name)
            if handler is not None:
                if _is_inner(event):
                    return []
                return list(handler(event, split_arguments(event.arguments), partial(self._make, event)))
            if event.name in STARTERS:
                self.lineage.started(event)
                return self._forked(event) if self._forks else []
        elif isinstance(event, Unfinished):
            self.lineage.begins(event)
        elif isinstance(event, Ended):
            self.lineage.ended(event)
        elif isinstance(event, Superseded):
            self.lineage.superseded(event)
        return []

    def _forked(self, call: Syscall) -> list[Observation]:
        child = call.value or 0
        # Threads are shared by the calls of a server, or made once for many.
        if child <= 0 or "CLONE_THREAD" in call.arguments:
            return []
        lineage = self.lineage.ancestry(child)
        return [Observation(Capability.PROC_EXEC, FORK, child, call.time, call.line, lineage=lineage)]

    def _make(self, call: Syscall, capability: Capability, action: str, **fields: object) -> Observation:
        fields.setdefault("error", None if call.ok or call.value is None else call.error)
        lineage = self.lineage.ancestry(call.pid)
        return Observation(capability, action, call.pid, call.time, call.line, lineage=lineage, **fields)  # type: ignore[arg-type]

    def _opened_plainly(self, call: Syscall) -> list[Observation] | None:
        """Return what opening a file by a plain name means, for speed: most lines of most traces. Else None."""
        found = _plain_opening(call.arguments)
        process, rest = self.lineage.process(call.pid), call.rest
        if found is None or process.memory:
            return None
        folder, given, mode = found.groups()
        if rest[:2] == "</" and rest[-1] == ">" and "\\" not in rest:
            path, error = rest[1:-1], None
        elif rest[:8] == " ENOENT " and call.value == -1 and given:
            process.cwd = folder.encode()
            path, error = text(process.resolve(given.encode(), process.cwd)), "ENOENT"
        else:
            return None
        if not _is_file(path.encode()):
            return []
        lineage = self.lineage.ancestry(call.pid)
        return [
            Observation(kind, action, call.pid, call.time, call.line, path, error=error, lineage=lineage)
            for kind, action in _opening(mode, error is None)
        ]

    def _opened(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        process, at = self.lineage.process(call.pid), OPENERS[call.name]
        opened = returned(call.value, call.returned)
        # The path that the kernel returned, where it did: links are resolved in it, so none can disguise a file.
        if opened is not None and opened.path is not None:
            self._note(process, opened)
            path: bytes | None = opened.path
        else:
            path = self._path(process, arguments, at, with_folder=at == 1)
        if path is None or not _is_file(path):
            return
        mode = arguments[at + 1].strip("{}").partition(",")[0] if len(arguments) > at + 1 else ""
        for kind, action in _opening(CREATES if call.name == "creat" else mode, call.ok):
            yield make(kind, action, path=text(path))

    def _written(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        at, with_data = COPIERS.get(call.name, 0), call.name in WRITERS
        to = descriptor(arguments[at]) if len(arguments) > at else None
        if to is None or to.path is None:
            return
        if (inode := to.inode) is not None:
            if inode[0] == "socket" and with_data:
                yield from self._sockets.written(call, arguments, inode[1], make)
            elif inode[0] == "socket":
                yield from self._sockets.sent(call, inode[1], None, b"", make)
        elif self._counts(to):
            yield make(Capability.FS_WRITE, "write" if with_data else call.name, path=text(to.path))

    def _mapped(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        # A writable shared mapping changes the file without any write call.
        if len(arguments) < 5 or "MAP_SHARED" not in arguments[3] or "PROT_WRITE" not in arguments[2]:
            return
        of = descriptor(arguments[4])
        if of is not None and of.path is not None and self._counts(of):
            yield make(Capability.FS_WRITE, "mmap", path=text(of.path))

    def _named(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        process = self.lineage.process(call.pid)
        for capability, action, at, with_folder in PATHS.get(call.name) or LOOKS[call.name]:
            path = self._path(process, arguments, at, with_folder=with_folder)
            if path is not None and _is_file(path):
                folder = action == "unlink" and "AT_REMOVEDIR" in arguments[-1]
                yield make(capability, "rmdir" if folder else action, path=text(path))

    def _executed(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        if call.error in _NOT_THERE and not self._searches:  # the search of PATH
            return
        process, at = self.lineage.process(call.pid), 1 if call.name == "execveat" else 0
        path = self._path(process, arguments, at, with_folder=at == 1)
        by = descriptor(arguments[0]) if at else None
        nameless = by is not None and by.deleted and path == by.path
        # A program executed from memory has no file to inspect: known by its memfd, also through /proc/self/fd/N.
        own = _OWN_DESCRIPTOR.fullmatch(path or b"")
        memory = process.memory_file(int(own[1])) if own else None
        if memory is not None:
            path, nameless = memory, True
        argv = words(arguments[at + 1]) if len(arguments) > at + 1 else None
        given = tuple(text(word.data) + ("…" if word.truncated else "") for word in argv or ())
        fileless = nameless or (path or b"").startswith(_MEMORY)
        kind = Capability.EXEC_FILELESS if fileless else Capability.PROC_EXEC
        yield make(kind, "exec", path=text(path) if path else None, argv=given)

    def _asked_kernel(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        yield make(Capability.KERNEL, call.name, path=", ".join(self._by_number(call, arguments)[:2])[:200])

    def _signalled(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        # Signal 0 only tests whether a process exists, and the server's own processes are its own business.
        given = self._by_number(call, arguments)
        target = given[0] if given else ""
        number = int(target) if target.lstrip("-").isdecimal() else None
        only_tests = "0" in given[1:3]
        if number is None or only_tests or number in (0, -(self.group or 0)):
            return
        if number == EVERYBODY or not self.lineage.knows(abs(number)):
            yield make(Capability.KERNEL, "kill", path=", ".join(given[:3])[:200])

    def _by_number(self, call: Syscall, arguments: list[str]) -> list[str]:
        """Return the arguments with a pidfd replaced by the number of its process."""
        handle = descriptor(arguments[0]) if arguments and call.name in BY_HANDLE else None
        number = self.lineage.process(call.pid).handles.get(handle.number or 0) if handle else None
        return arguments if number is None else [str(number), *arguments[1:]]

    def _followed(self, call: Syscall, arguments: list[str], make: Make) -> Made:
        """Note what later calls refer to: pidfds, working directories and files in memory."""
        process = self.lineage.process(call.pid)
        given = descriptor(arguments[0]) if arguments else None
        if call.name == "pidfd_open":
            known = call.ok and arguments and arguments[0].isdecimal()
            if known and call.value is not None and len(process.handles) < MAX_HANDLES:
                process.handles[call.value] = int(arguments[0])
        elif call.name in ("chdir", "fchdir"):
            path = given.path if given is not None else self._path(process, arguments, 0, with_folder=False)
            if call.ok and path is not None:
                process.cwd = path
        elif (made := returned(call.value, call.returned)) is not None:
            self._note(process, made)
        yield from ()

    def _note(self, process: Process, made: Descriptor) -> None:
        assert made.number is not None
        if made.path is not None and made.path.startswith(b"/memfd:"):
            process.memory[made.number] = made.path
        else:
            process.memory.pop(made.number, None)

    def _path(self, process: Process, arguments: list[str], at: int, *, with_folder: bool) -> bytes | None:
        given = quoted(arguments[at]) if len(arguments) > at else None
        folder = descriptor(arguments[at - 1]) if with_folder and 0 < at <= len(arguments) else None
        if folder is not None and folder.number is None and folder.path is not None:
            process.cwd = folder.path
        if given is None:
            return None
        if not given.data:  # AT_EMPTY_PATH: the descriptor itself
            return folder.path if folder else None
        return process.resolve(given.data, folder.path if folder else None)

    def _counts(self, to: Descriptor) -> bool:
        return to.path is not None and _is_file(to.path) and to.path not in self._ignored


@cache
def _opening(given: str, ok: bool) -> tuple[tuple[Capability, str], ...]:  # noqa: FBT001  kept by both
    mode = flags(given)
    if "O_PATH" in mode:
        return ()
    done: list[tuple[Capability, str]] = []
    if "O_TRUNC" in mode or mode >= {"O_CREAT", "O_EXCL"}:
        done.append((Capability.FS_WRITE, "create" if "O_EXCL" in mode else "truncate"))
    if "O_TMPFILE" not in mode and "O_WRONLY" not in mode:
        done.append((Capability.FS_READ, "list" if "O_DIRECTORY" in mode else "open"))
    elif not ok and "O_TRUNC" not in mode:
        done.append((Capability.FS_WRITE, "open"))
    elif not done and mode >= {"O_WRONLY", "O_CREAT"}:  # as `touch` does: where there was no file, there is one now
        done.append((Capability.FS_WRITE, "create"))
    return tuple(done)


def _is_inner(call: Syscall) -> bool:
    """Return quickly whether a call has no effect outside of the program, or never reached the kernel."""
    if call.name in WRITERS:
        return "<pipe:" in call.arguments.partition(">")[0]
    if call.name == "mmap":
        return "MAP_SHARED" not in call.arguments
    return call.injected and call.name == "io_uring_setup"


def _is_file(path: bytes) -> bool:
    return path.startswith(b"/") and not path.startswith(_NOT_FILES) and path not in _DEVICES
