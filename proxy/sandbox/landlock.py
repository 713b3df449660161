"""Landlock: which files a process may open, create, remove and execute. By ctypes; needs no privilege.

A rule holds for a file or for everything below a folder. It is bound to the inode, so a rename outside opens nothing.
Landlock does not see chmod, chown, extended attributes and stat: read-only mounts and a root folder without the rest
are for those.
"""

from __future__ import annotations

import ctypes
import os
import stat

from proxy.sandbox.kernel_calls import LIBC, SandboxError, check

CREATE, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION, PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR, MAKE_REG = 1 << 4, 1 << 5, 1 << 6, 1 << 7, 1 << 8
MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(9, 16))
# The rights that each version of the interface knows; asking for one that it does not know is an error.
HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
NET_BIND_TCP, NET_CONNECT_TCP = 1, 2
SCOPE_ABSTRACT_UNIX, SCOPE_SIGNAL = 1, 2
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
READ = READ_FILE | READ_DIR
# Not MAKE_CHAR and MAKE_BLOCK: nobody needs devices.
WRITE = (
    READ | WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
) | REFER


def version() -> int:
    """Return the version of the kernel's interface; 0 where there is none, or it is switched off."""
    return max(0, int(LIBC.syscall(CREATE, None, 0, VERSION)))


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("access", ctypes.c_uint64), ("parent", ctypes.c_int32))


def restrict(rules: list[tuple[str, int]], *, abi: int, no_tcp: bool = False) -> None:
    """Allow this process and its children what `rules` name, and no other file. Raises SandboxError.

    Needs no_new_privs. With `no_tcp`, TCP is refused as well, as far as the kernel can.
    """
    handled = HANDLED[min(abi, max(HANDLED))]
    wanted = _Ruleset(handled, 0, 0)
    size = 8
    if abi >= 4:
        wanted.net, size = (NET_BIND_TCP | NET_CONNECT_TCP) if no_tcp else 0, 16
    if abi >= 6:
        wanted.scoped, size = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL, 24
    ruleset = check(LIBC.syscall(CREATE, ctypes.byref(wanted), ctypes.c_size_t(size), 0), "making a Landlock ruleset")
    try:
        for path, access in rules:
            _add(ruleset, path, access & handled)
        check(LIBC.syscall(RESTRICT_SELF, ruleset, 0), "entering the Landlock domain")
    finally:
        os.close(ruleset)


def _add(ruleset: int, path: str, access: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # nothing is there that could be opened
    except OSError as error:
        raise SandboxError(f"opening {path} for a rule: {error.strerror}") from error
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            access &= ON_FILES
        rule = _PathBeneath(access, handle)
        if access:
            check(LIBC.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0), f"a Landlock rule for {path}")
    finally:
        os.close(handle)
