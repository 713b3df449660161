"""Gives a launcher what no server may use, and becomes it: `python -m tests.sandbox.equipped PROGRAM ARGUMENT…`.

A key in its session keyring, a descriptor that leads outside, and a terminal. Needs a session of its own.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import termios

from proxy.sandbox.kernel_calls import join_new_session_keyring

KEY = "interlock-test-key"
KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219}
# Prints what a process finds of the key; 0 would be an error of a kernel without keyrings.
SEARCH = (
    f"import ctypes, os; found = ctypes.CDLL(None).syscall({KEYCTL!r}[os.uname().machine], 10, -3, b'user',"
    f" b'{KEY}', 0); print('found' if found > 0 else 'not found', '{KEY}' in os.popen('cat /proc/keys').read())"
)
DESCRIPTOR = 64
ADD_KEY, SESSION_KEYRING = {"x86_64": 248, "aarch64": 217, "riscv64": 217}, -3


def add_key() -> None:
    """Put a key into a session keyring of our own, as `keyctl` would."""
    assert join_new_session_keyring()
    number = ADD_KEY[os.uname().machine]
    made = ctypes.CDLL(None).syscall(number, b"user", KEY.encode(), b"secret", 6, SESSION_KEYRING)
    assert made > 0, "no key can be made here"


def take_terminal() -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
    os.set_inheritable(ours, True)  # while nobody holds it, the terminal is gone


def main() -> None:
    add_key()
    take_terminal()
    os.dup2(2, DESCRIPTOR)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
