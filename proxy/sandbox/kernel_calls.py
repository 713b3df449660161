"""System calls that Python has no function for. Imports little: a server waits for what uses it.

Each raises SandboxError with the step and the kernel's reason.
"""

from __future__ import annotations

import ctypes
import os

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 0x1000, 0x4000, 1 << 18
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8
AT_FDCWD, AT_RECURSIVE, MNT_DETACH = -100, 0x8000, 2
MOUNT_SETATTR = 442
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 24, 47, 4
KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219}
JOIN_SESSION_KEYRING = 1
CAPABILITY_VERSION, CAPABILITIES = 0x20080522, 64
LIBC = ctypes.CDLL(None, use_errno=True)


class SandboxError(Exception):
    """A step of the sandbox is refused; the message says which, and why."""


def check(result: int, step: str) -> int:
    if result < 0:
        raise SandboxError(f"{step}: {os.strerror(ctypes.get_errno())}")
    return result


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [os.fsencode(word) if word is not None else None for word in (source, target, kind)]
    check(LIBC.mount(*words, ctypes.c_ulong(flags), data.encode() or None), f"mounting {kind or source} on {target}")


class _Attributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd"))


def set_mount_attributes(path: str, attributes: int, flags: int = AT_RECURSIVE) -> None:
    wanted = _Attributes(attributes, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    made = LIBC.syscall(MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), ctypes.c_uint(flags), ctypes.byref(wanted), size)
    check(made, f"protecting {path}")


def pivot_root(new: str) -> None:
    """Make `new` the root folder; what was there before is gone."""
    os.chdir(new)
    check(LIBC.pivot_root(b".", b"."), "changing the root folder")
    check(LIBC.umount2(b".", MNT_DETACH), "leaving the machine's files")
    os.chdir("/")


def join_new_session_keyring() -> bool:
    """Have a session keyring of our own; return False on a kernel or in a container without keyrings."""
    number = KEYCTL.get(os.uname().machine)
    return number is not None and LIBC.syscall(number, JOIN_SESSION_KEYRING, None, 0, 0, 0) > 0


def renounce_capabilities() -> None:
    """Give up every capability, also for what is executed."""
    for number in range(CAPABILITIES):
        LIBC.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0)  # the kernel does not know as many
    LIBC.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0)
    head = CAPABILITY_VERSION.to_bytes(4, "little") + bytes(4)
    check(LIBC.capset(head, bytes(24)), "dropping capabilities")
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0), "forbidding new privileges")
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123  pathlib is slow to import
        left = [line for line in file if line.startswith(b"Cap") and int(line.split()[1], 16)]
    if left:
        raise SandboxError("dropping capabilities: some are left")
