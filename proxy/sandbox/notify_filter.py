"""A seccomp filter that asks a supervisor about every system call that names a file, and starts a program under it.

Run as a script of its own, so it uses the standard library alone: `python notify_filter.py FD SOCKETS PROGRAM NAME
ARGUMENT…`. FD is a unix socket to the supervisor, to which the filter's listener goes; SOCKETS is `unix` where the
program may make unix sockets, else `pairs`. `install_notify_filter` and `send_listener` are
for a launcher that takes other steps as well; they must be its last before it executes the program.

A filter sees numbers, not memory. So calls whose meaning lies in memory go to the supervisor, which copies the path and
opens the file itself (`notify_supervisor.py`). Calls that get at files in ways nobody could follow go there too, and
are refused. When the supervisor is gone, all of them fail with ENOSYS.
"""

from __future__ import annotations

import _socket
import array
import ctypes
import errno
import os
import struct
import sys
from typing import Final, NamedTuple, NoReturn

PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
NEW_LISTENER, WAIT_KILLABLE_RECV = 1 << 3, 1 << 5
ALLOW, REFUSE, NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT, THIRD_ARGUMENT = 0, 4, 16, 24, 32
O_PATH = 0o10000000
# Later calls than these may open files too; and x32 numbers its own from 0x40000000 on.
FIRST_UNKNOWN = 470
# A process in another mount or user namespace would name other files by the same paths.
NEW_NAMESPACES = os.CLONE_NEWNS | os.CLONE_NEWUSER
NOT_EXECUTABLE, NOT_FOUND = 126, 127

# Calls that the supervisor carries out.
FILES: Final = (
    *("open", "creat", "openat", "openat2", "unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2", "link"),
    *("linkat", "symlink", "symlinkat", "mkdir", "mkdirat", "mknod", "mknodat", "chmod", "fchmodat", "fchmodat2"),
    *("chown", "lchown", "fchownat", "truncate", "utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr"),
    *("removexattr", "lremovexattr", "setxattrat", "removexattrat", "file_setattr"),
)
# Calls that get at files without a path that could be copied, or change what paths mean. They are refused by the
# supervisor and not by the filter, so that each attempt is told.
REFUSED: Final = (
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "open_by_handle_at", "fanotify_init", "mount"),
    *("umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount"),
    *("fspick", "mount_setattr", "setns", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"),
    *("userfaultfd", "acct", "swapon", "uselib", "bpf", "perf_event_open", "quotactl"),
)
# The supervisor acts as the user that the server began as, so no process of the server may become another.
USERS: Final = (
    *("setuid", "setgid", "setreuid", "setregid", "setgroups", "setresuid", "setresgid", "setfsuid", "setfsgid"),
)


class Machine(NamedTuple):
    architecture: int
    numbers: dict[str, int]


def _numbers(text: str) -> dict[str, int]:
    pairs = (word.split("=") for word in text.split())
    return {name: int(number) for name, number in pairs}


# The same on every machine.
_COMMON: Final = _numbers("""
    io_uring_setup=425 io_uring_enter=426 io_uring_register=427 open_tree=428 move_mount=429 fsopen=430
    fsconfig=431 fsmount=432 fspick=433 clone3=435 openat2=437 pidfd_getfd=438 mount_setattr=442
    fchmodat2=452 setxattrat=463 removexattrat=466 open_tree_attr=467 file_setattr=469
""")
MACHINES: Final = {
    "x86_64": Machine(
        0xC000003E,
        _COMMON
        | _numbers("""
            open=2 socket=41 clone=56 truncate=76 rename=82 mkdir=83 rmdir=84 creat=85 link=86 unlink=87 symlink=88
            chmod=90 chown=92 lchown=94 ptrace=101 setuid=105 setgid=106 setreuid=113 setregid=114 setgroups=116
            setresuid=117 setresgid=119 setfsuid=122 setfsgid=123 utime=132 mknod=133 uselib=134 pivot_root=155
            chroot=161 acct=163 mount=165 umount2=166 swapon=167 quotactl=179 setxattr=188 lsetxattr=189
            removexattr=197 lremovexattr=198 utimes=235 openat=257 mkdirat=258 mknodat=259 fchownat=260
            futimesat=261 unlinkat=263 renameat=264 linkat=265 symlinkat=266 fchmodat=268 unshare=272 utimensat=280
            perf_event_open=298 fanotify_init=300 open_by_handle_at=304 setns=308 process_vm_readv=310
            process_vm_writev=311 renameat2=316 bpf=321 userfaultfd=323
        """),
    ),
    "aarch64": Machine(
        0xC00000B7,
        _COMMON
        | _numbers("""
            setxattr=5 lsetxattr=6 removexattr=14 lremovexattr=15 mknodat=33 mkdirat=34 unlinkat=35 symlinkat=36
            linkat=37 renameat=38 umount2=39 mount=40 pivot_root=41 truncate=45 chroot=51 fchmodat=53 fchownat=54
            openat=56 quotactl=60 utimensat=88 acct=89 unshare=97 ptrace=117 setregid=143 setgid=144 setreuid=145
            setuid=146 setresuid=147 setresgid=149 setfsuid=151 setfsgid=152 setgroups=159 socket=198 clone=220
            swapon=224 perf_event_open=241 fanotify_init=262 open_by_handle_at=265 setns=268 process_vm_readv=270
            process_vm_writev=271 renameat2=276 bpf=280 userfaultfd=282
        """),
    ),
}

type Instruction = tuple[int, int, int, int]  # code, instructions to skip where true, where false, operand


class NotifyError(RuntimeError):
    """The kernel does not let us supervise a program; the message says why."""


def this_machine() -> Machine:
    """Return the system calls of the machine that we run on. Raises NotifyError for one that is not known."""
    machine = MACHINES.get(os.uname().machine)
    if machine is None:
        raise NotifyError(f"no system call numbers are known for {os.uname().machine!r}")
    return machine


def make_filter(machine: Machine, *, unix_sockets: bool = False) -> list[Instruction]:
    """Return the filter for a machine, in classic BPF. Pure."""
    no_such_call, no_such_family = ((RETURN, 0, 0, REFUSE | code) for code in (errno.ENOSYS, errno.EAFNOSUPPORT))
    ask: Instruction = (RETURN, 0, 0, NOTIFY)
    pass_on: Instruction = (RETURN, 0, 0, ALLOW)
    numbers = machine.numbers
    asked = sorted(numbers[name] for name in (*FILES, *REFUSED, *USERS) if name in numbers)
    # A descriptor can come by a unix socket, from a process that nobody supervises. Pairs stay within the server.
    unix = [] if unix_sockets else [(EQUAL, 0, 1, int(_socket.AF_UNIX)), no_such_family]
    return [
        # First: a 32-bit program numbers its calls otherwise, so none of the numbers below would match.
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, machine.architecture),
        no_such_call,
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 0, 1, FIRST_UNKNOWN),
        no_such_call,
        # Its flags are in memory, where a filter cannot look. Every libc falls back to clone.
        *_where(numbers["clone3"], [no_such_call]),
        *(step for name in ("clone", "unshare") for step in _where(numbers[name], _with_namespaces(ask, pass_on))),
        *_where(numbers["socket"], [(LOAD, 0, 0, FIRST_ARGUMENT), *unix, pass_on]),
        # A descriptor that only names its object, as stat does, cannot be handed in. To open it again is asked about.
        *_where(numbers["openat"], _only_named(THIRD_ARGUMENT, ask, pass_on)),
        *(_where(numbers["open"], _only_named(SECOND_ARGUMENT, ask, pass_on)) if "open" in numbers else ()),
        *(step for number in asked for step in ((EQUAL, 0, 1, number), ask)),
        pass_on,
    ]


def _where(value: int, then: list[Instruction]) -> list[Instruction]:
    """Execute `then` where the loaded word is `value`, else skip it."""
    return [(EQUAL, 0, len(then), value), *then]


def _only_named(flags: int, ask: Instruction, pass_on: Instruction) -> list[Instruction]:
    return [(LOAD, 0, 0, flags), (ANY_BIT, 0, 1, O_PATH), pass_on, ask]


def _with_namespaces(ask: Instruction, pass_on: Instruction) -> list[Instruction]:
    return [(LOAD, 0, 0, FIRST_ARGUMENT), (ANY_BIT, 0, 1, NEW_NAMESPACES), ask, pass_on]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


# The number of seccomp(2): glibc has no function for it.
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}


def install_notify_filter(*, unix_sockets: bool = False) -> int:
    """Filter this process and all it starts; return the listener's descriptor. Raises NotifyError."""
    steps = make_filter(this_machine(), unix_sockets=unix_sockets)
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = _Program(len(steps), code)
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_ulong(value) for value in (1, 0, 0, 0)]
    if libc.prctl(PR_SET_NO_NEW_PRIVS, *words) != 0:
        raise NotifyError(f"forbidding new privileges: {os.strerror(ctypes.get_errno())}")
    number = ctypes.c_long(_SECCOMP[os.uname().machine])
    # Killable: a signal would restart a call that the supervisor has half done. Kernels before 5.19 lack the flag.
    for flags in (NEW_LISTENER | WAIT_KILLABLE_RECV, NEW_LISTENER):
        listener: int = libc.syscall(number, ctypes.c_long(SECCOMP_SET_MODE_FILTER), flags, ctypes.byref(program))
        if listener >= 0:
            return listener
        if ctypes.get_errno() != errno.EINVAL:
            break
    raise NotifyError(f"a seccomp filter with a listener: {os.strerror(ctypes.get_errno())}")


def send_listener(channel: _socket.socket, listener: int) -> None:
    """Send the listener to the supervisor, wait until it serves, and close both. Raises OSError where it is gone."""
    numbers = array.array("i", [listener])
    channel.sendmsg([b"L"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    if channel.recv(1) != b"G":
        raise ConnectionResetError("the supervisor of this program is gone")
    # The program must have neither: with the listener it could answer its own questions.
    os.close(listener)
    channel.close()


def main(argv: list[str]) -> NoReturn:
    channel, program, command = _socket.socket(fileno=int(argv[0])), argv[2], argv[3:]
    try:
        send_listener(channel, install_notify_filter(unix_sockets=argv[1] == "unix"))
        os.execve(program, command, os.environ)  # noqa: S606  no shell: the words are the client's own
    except (OSError, NotifyError) as error:
        os.write(2, f"interlock run: cannot start {command[0]!r} under a supervisor: {error}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


if __name__ == "__main__":
    main(sys.argv[1:])
