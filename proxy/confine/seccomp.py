"""A seccomp filter that refuses the system calls which lead around namespaces."""

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

type Instruction = tuple[int, int, int, int]  # code, instructions to skip where true, where false, operand


def make_filter(machine: SyscallNumbers) -> list[Instruction]:
    """Return the filter for a machine, in classic BPF. Pure."""
    families, terminal = (UNIX, INET, INET6, NETLINK), (TIOCSTI, TIOCLINUX)
    no_such_call, no_such_family, forbidden = (
        (RETURN, 0, 0, REFUSE | code) for code in (errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPERM)
    )
    pass_on: Instruction = (RETURN, 0, 0, ALLOW)
    return [
        # First: a 32-bit program numbers its calls otherwise, so none of the numbers below would match.
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, machine.architecture),
        no_such_call,
        (LOAD, 0, 0, NUMBER),
        # x32 has the same architecture and its own numbers, from this one on.
        (AT_LEAST, 0, 1, X32),
        no_such_call,
        # io_uring makes sockets without a system call that a filter could see.
        *_where(machine.io_uring_setup, [no_such_call]),
        # For some keys the kernel starts a program, outside of every namespace.
        *_where(machine.request_key, [no_such_call]),
        # Not every family is in a network namespace: vsock reaches a virtual machine's host.
        *_where(machine.socket, [(LOAD, 0, 0, FIRST_ARGUMENT), *_where_any(families, pass_on), no_such_family]),
        # These put characters into the terminal's input, which the shell outside reads once the agent has ended.
        *_where(machine.ioctl, [(LOAD, 0, 0, SECOND_ARGUMENT), *_where_any(terminal, forbidden), pass_on]),
        pass_on,
    ]


def _where(value: int, then: Sequence[Instruction]) -> list[Instruction]:
    """Execute `then` where the loaded word is `value`, else skip it."""
    return [(EQUAL, 0, len(then), value), *then]


def _where_any(values: Sequence[int], then: Instruction) -> list[Instruction]:
    """Execute `then` where the loaded word is one of `values`."""
    return [step for value in values for step in ((EQUAL, 0, 1, value), then)]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install_filter() -> None:
    """Filter the system calls of this process and its children. Raises NamespaceError where that is impossible."""
    machine = MACHINES.get(platform.machine())
    if machine is None:
        raise NamespaceError(f"a seccomp filter: no system call numbers are known for {platform.machine()!r}")
    steps = make_filter(machine)
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = _Program(len(steps), code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.byref(program), 0, 0) != 0:
        raise NamespaceError(f"a seccomp filter: {os.strerror(ctypes.get_errno())}")
