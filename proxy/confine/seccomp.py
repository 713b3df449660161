"""The system calls that lead around a network namespace, refused by a seccomp filter.

Some doors are in no namespace: sockets to a virtual machine's host (vsock) and of other
rare families, keys for which the kernel starts a program outside, and characters
put into the terminal's input for the shell to read later. io_uring makes sockets that no
filter sees. A program for another machine (32 bit) numbers its calls otherwise.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.sandbox.namespaces import NamespaceError

if TYPE_CHECKING:
    from collections.abc import Sequence

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24
X32 = 0x40000000
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
TIOCSTI, TIOCLINUX = 0x5412, 0x541C


class SyscallNumbers(NamedTuple):
    """How a kind of machine numbers its system calls."""

    architecture: int
    socket: int
    ioctl: int
    request_key: int
    io_uring_setup: int = 425


MACHINES: Final = {
    "x86_64": SyscallNumbers(0xC000003E, 41, 16, 249),
    "aarch64": SyscallNumbers(0xC00000B7, 198, 29, 218),
    "riscv64": SyscallNumbers(0xC00000F3, 198, 29, 218),
}

type Instruction = tuple[int, int, int, int]
"""Code, jump where true, jump where false, operand; jumps skip so many."""


def make_filter(machine: SyscallNumbers) -> list[Instruction]:
    """Return the filter for a machine. Pure."""
    families, terminal = (UNIX, INET, INET6, NETLINK), (TIOCSTI, TIOCLINUX)
    no_such_call, no_such_family, forbidden = (
        (RETURN, 0, 0, REFUSE | code) for code in (errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPERM)
    )
    pass_on: Instruction = (RETURN, 0, 0, ALLOW)
    return [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, machine.architecture),
        no_such_call,
        (LOAD, 0, 0, NUMBER),
        (AT_LEAST, 0, 1, X32),
        no_such_call,
        *_unless(machine.io_uring_setup, [no_such_call]),
        *_unless(machine.request_key, [no_such_call]),
        *_unless(machine.socket, [(LOAD, 0, 0, FIRST_ARGUMENT), *_where(families, pass_on), no_such_family]),
        *_unless(machine.ioctl, [(LOAD, 0, 0, SECOND_ARGUMENT), *_where(terminal, forbidden), pass_on]),
        pass_on,
    ]


def _unless(value: int, then: Sequence[Instruction]) -> list[Instruction]:
    """Skip `then` unless what was loaded is `value`."""
    return [(EQUAL, 0, len(then), value), *then]


def _where(values: Sequence[int], then: Instruction) -> list[Instruction]:
    """Do `then` where what was loaded is one of `values`."""
    return [step for value in values for step in ((EQUAL, 0, 1, value), then)]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install_filter() -> None:
    """Filter this process's system calls, and those of all that it starts. Raises NamespaceError where it cannot be."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        raise NamespaceError(f"a filter of system calls: {platform.machine()!r} is no machine that one is known for")
    steps = make_filter(machine)
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = _Program(len(steps), code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.byref(program), 0, 0) != 0:
        raise NamespaceError(f"a filter of system calls: {os.strerror(ctypes.get_errno())}")
