"""The seccomp filter of a sandboxed server: refuses the system calls that no server needs.

`make_filter` is pure. The filter also holds where there are no namespaces.
"""

from __future__ import annotations

import ctypes
import errno
import os

from proxy.sandbox.kernel_calls import LIBC, SandboxError, check

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
ALLOW, REFUSE, NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
SECCOMP_SET_MODE_FILTER, NEW_LISTENER = 1, 1 << 3
LOAD, EQUAL, AT_LEAST, ANY_BIT, MASK, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
# Later calls may be new ways to do what is refused here; and x32 numbers its own from 0x40000000 on.
FIRST_UNKNOWN = 470
X32 = 0x40000000
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
SOCK_DGRAM, SOCK_RAW, SOCK_KIND = 2, 3, 0xF
# TCP and UDP, ping, and multipath TCP, which Go asks for by itself. The rest would have the kernel load modules.
PROTOCOLS = (0, 1, 6, 17, 58, 262)
SET_USER_ID = 0o4000
RLIMIT_CORE = 4
TIOCSTI, TIOCLINUX, TIOCSETD = 0x5412, 0x541C, 0x5423
NEW_NAMESPACES = 0x7E020000
NEW_TIME = 0x80
ALL_BITS = 0xFFFFFFFF
MFD_NOEXEC_SEAL, MFD_EXEC = 0x8, 0x10

# Numbers: x86_64, and what aarch64 and riscv64 share; None where the machine has no such call.
CALLS: dict[str, tuple[int | None, int | None]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "setns": (308, 268),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "syslog": (103, 116),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "vmsplice": (278, 75),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "nfsservctl": (180, 42),
}
# Refused as if the kernel were older: programs then fall back to calls that can be seen.
UNKNOWN: dict[str, tuple[int, int]] = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),
}
CLONE, UNSHARE, SOCKET, SOCKETPAIR, IOCTL, MEMFD_CREATE = (
    (56, 220),
    (272, 97),
    (41, 198),
    (53, 199),
    (16, 29),
    (319, 279),
)
SECCOMP = (317, 277)
SET_LIMIT, SET_LIMIT_OF = (160, 164), (302, 261)
# Which argument is the mode.
CHANGE_MODE: dict[str, tuple[int | None, int | None, int]] = {
    "chmod": (90, None, 1),
    "fchmod": (91, 52, 1),
    "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2),
}
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1), "riscv64": (0xC00000F3, 1)}

type Instruction = tuple[int, int, int, int]


def argument(number: int) -> Instruction:
    """Load the lower half of an argument; every checked one is an int to the kernel."""
    return LOAD, 0, 0, ARGUMENTS + 8 * number


def upper(number: int) -> Instruction:
    """Load the upper half of an argument."""
    return LOAD, 0, 0, ARGUMENTS + 8 * number + 4


def make_filter(machine: str, *, unix: bool, inet: bool, memfd_exec_off: bool, told: bool = False) -> list[Instruction]:
    """Return the filter for a machine, in classic BPF; KeyError for one whose numbers are not known.

    `unix` and `inet` are the kinds of sockets that may be made; a pair of unix streams always may. With
    `memfd_exec_off` the kernel itself makes memory files without the right to be executed. `told`: what is refused
    goes to the filter's listener, which answers with the error; what programs try all the time does not.
    """
    architecture, column = ARCHITECTURES[machine]
    refused, unknown, family = (_answer(code) for code in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))
    if told:
        refused = family = (RETURN, 0, 0, NOTIFY)
    pass_on: Instruction = (RETURN, 0, 0, ALLOW)
    steps: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        unknown,
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 0, 1, FIRST_UNKNOWN),
        unknown,
    ]
    for numbers in CALLS.values():
        number = numbers[column]
        if number is not None:
            steps += _where(number, [refused])
    for known in UNKNOWN.values():
        steps += _where(known[column], [unknown])
    steps += _where(CLONE[column], [argument(0), (ANY_BIT, 0, 1, NEW_NAMESPACES), refused, pass_on])
    steps += _where(UNSHARE[column], [argument(0), (ANY_BIT, 0, 1, NEW_NAMESPACES | NEW_TIME), refused, pass_on])
    steps += _where(SOCKET[column], _socket_steps(unix=unix, inet=inet, refused=refused, family=family))
    steps += _where(SOCKETPAIR[column], _pair_steps(unix=unix, family=family))
    steps += _where(MEMFD_CREATE[column], _memfd_steps(memfd_exec_off, refused, unknown))
    # Among filters that ask, the latest is asked: a listener of the server's own would answer in place of ours.
    steps += _where(SECCOMP[column], [argument(1), (ANY_BIT, 0, 1, NEW_LISTENER), refused, pass_on])
    steps += _mode_steps(column, refused)
    steps += _core_limit_steps(column)
    ioctls = [step for value in (TIOCSTI, TIOCLINUX, TIOCSETD) for step in _where(value, [refused])]
    steps += _where(IOCTL[column], [argument(1), *ioctls, pass_on])
    return [*steps, pass_on]


def _answer(code: int) -> Instruction:
    return RETURN, 0, 0, REFUSE | code


def _socket_steps(*, unix: bool, inet: bool, refused: Instruction, family: Instruction) -> list[Instruction]:
    pass_on: Instruction = (RETURN, 0, 0, ALLOW)
    steps = [argument(0)]
    if unix:
        steps += _where(UNIX, [pass_on])
    # The routing table alone: programs ask it for the machine's addresses. Others, such as audit, are nobody's need.
    steps += _where(NETLINK, [argument(2), *_where(0, [pass_on]), family])
    usual = [step for protocol in PROTOCOLS for step in _where(protocol, [pass_on])]
    plain = [argument(1), (MASK, 0, 0, SOCK_KIND), *_where(SOCK_RAW, [refused]), argument(2), *usual, family]
    if inet:
        steps += [*_where(INET, plain), *_where(INET6, plain)]
    return [*steps, family]


def _pair_steps(*, unix: bool, family: Instruction) -> list[Instruction]:
    pass_on: Instruction = (RETURN, 0, 0, ALLOW)
    # A pair of streams stays a pair. One of datagrams (and a "raw" one is that) sends to every address that it names.
    loose = [step for kind in (SOCK_DGRAM, SOCK_RAW) for step in _where(kind, [family])]
    kinds = [] if unix else [argument(1), (MASK, 0, 0, SOCK_KIND), *loose]
    return [argument(0), *_where(UNIX, [*kinds, pass_on]), family]


def _memfd_steps(exec_off: bool, refused: Instruction, unknown: Instruction) -> list[Instruction]:  # noqa: FBT001
    pass_on: Instruction = (RETURN, 0, 0, ALLOW)
    last = pass_on if exec_off else unknown
    return [argument(1), (ANY_BIT, 0, 1, MFD_EXEC), refused, (ANY_BIT, 0, 1, MFD_NOEXEC_SEAL), pass_on, last]


def _mode_steps(column: int, refused: Instruction) -> list[Instruction]:
    """Refuse to make a program that others would run as the server's user: outside it would be one."""
    pass_on: Instruction = (RETURN, 0, 0, ALLOW)
    steps: list[Instruction] = []
    for *numbers, mode in CHANGE_MODE.values():
        number = numbers[column]
        if number is not None:
            steps += _where(number, [argument(mode), (ANY_BIT, 0, 1, SET_USER_ID), refused, pass_on])
    return steps


def _core_limit_steps(column: int) -> list[Instruction]:
    """Keep the limit on core files as it is, and say that it was changed: programs that ask for none would give up."""
    pass_on: Instruction = (RETURN, 0, 0, ALLOW)
    kept = _answer(0)
    # Without a new limit it is only asked for.
    asked: list[Instruction] = [argument(2), (ANY_BIT, 2, 0, ALL_BITS), upper(2), (ANY_BIT, 0, 1, ALL_BITS), kept]
    return [
        *_where(SET_LIMIT[column], [argument(0), *_where(RLIMIT_CORE, [kept]), pass_on]),
        *_where(SET_LIMIT_OF[column], [argument(1), *_where(RLIMIT_CORE, asked), pass_on]),
    ]


def _where(value: int, then: list[Instruction]) -> list[Instruction]:
    """Execute `then` where the loaded word is `value`, else skip it."""
    return [(EQUAL, 0, len(then), value), *then]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install_told(*, unix: bool, inet: bool, memfd_exec_off: bool) -> int | None:
    """Filter as `install` does, and return the descriptor of a listener for what is refused; None where none can be.

    A container's own supervisor may be the one listener that a process can have; older kernels know none.
    """
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return None
    program = _program(make_filter(machine, unix=unix, inet=inet, memfd_exec_off=memfd_exec_off, told=True))
    number = ctypes.c_long(SECCOMP[ARCHITECTURES[machine][1]])
    listener: int = LIBC.syscall(number, ctypes.c_long(SECCOMP_SET_MODE_FILTER), NEW_LISTENER, ctypes.byref(program))
    return listener if listener >= 0 else None


def _program(steps: list[Instruction]) -> _Program:
    code = b"".join(
        word.to_bytes(2, "little") + bytes((true, false)) + value.to_bytes(4, "little")
        for word, true, false, value in steps
    )
    return _Program(len(steps), code)


def install(*, unix: bool, inet: bool, memfd_exec_off: bool) -> None:
    """Filter this process's system calls and those of its children. Needs no_new_privs. Raises SandboxError."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise SandboxError(f"a seccomp filter: no system call numbers are known for {machine!r}")
    program = _program(make_filter(machine, unix=unix, inet=inet, memfd_exec_off=memfd_exec_off))
    made = LIBC.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.byref(program), 0, 0)
    check(made, "a seccomp filter")
