"""Detects a server that attacks strace, or us, in order to act unobserved.

A server that runs as the same user can signal these processes, read their memory and open what they have open. What can
be refused is refused (`tracer.REFUSED`, `forbid_inspection`); the rest is detected here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from pathlib import Path

from proxy.sandbox.process_reaper import PR_SET_DUMPABLE, descendants, prctl
from proxy.trace.capability import Capability, Observation

IN_OPEN = 0x20
EVENT_BYTES = 16
HOSTILE = frozenset({"kill", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"})
_TRACER = re.compile(rb"^TracerPid:\s*([0-9]+)$", re.MULTILINE)
_NUMBER = re.compile(r"-?[0-9]+")
_MEMORY = re.compile(r"/([0-9]+)(?:/task/[0-9]+)?/mem")


def forbid_inspection() -> None:
    """Deny other processes of our user access to our memory and to our open files below /proc."""
    # The trace pipe has no name any more, but /proc/PID/fd would be one: with it a server could forge lines.
    prctl(PR_SET_DUMPABLE, 0)


def find_tracer(root: int) -> int:
    """Return the process that traces something below `root`, as the kernel reports it; 0 where none does."""
    return next((found for pid in sorted(descendants(root)) if (found := _tracer_of(pid))), 0)


def _tracer_of(pid: int) -> int:
    try:
        found = _TRACER.search(Path(f"/proc/{pid}/status").read_bytes())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def tracer_state(pid: int) -> str | None:
    """Return `stopped`, `traced` (itself) or `gone`; None where the tracer runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "gone"
    if state in "ZX":
        return "gone"
    # First: who traces strace has stopped it too, and may let it run or not as it likes.
    return "traced" if _tracer_of(pid) else "stopped" if state in "Tt" else None


def attacks_watcher(seen: Observation, guards: frozenset[int]) -> bool:
    """Return whether a system call was aimed at one of `guards`: process ids, and negative ids of process groups."""
    path = seen.path or ""
    if seen.capability is Capability.KERNEL:
        return seen.action in HOSTILE and not guards.isdisjoint(map(int, _NUMBER.findall(path)))
    # Memory can be written through a file too; an attempt that failed has changed nothing.
    found = _MEMORY.search(path) if path.endswith("/mem") else None
    return found is not None and seen.ok and int(found[1]) in guards


def modifies(seen: Observation, protected: tuple[str, ...]) -> bool:
    """Return whether one of `protected`, or something below it, was written or deleted, or an attempt was made."""
    path = seen.path
    if path is None or seen.capability not in (Capability.FS_WRITE, Capability.FS_DELETE):
        return False
    return any(path == each or path.startswith(f"{each}/") for each in protected)


class OpenCounter:
    """Counts how often a file is opened, by whatever name. `descriptor` becomes readable when it is."""

    # By inotify, which watches the inode: an open through /proc/PID/fd counts like one by name.
    # Where the system has no inotify left, nothing is counted.

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        libc.inotify_add_watch(self.descriptor, os.fsencode(path), IN_OPEN)
        self._count = 0

    def count(self) -> int:
        with contextlib.suppress(OSError):
            while data := os.read(self.descriptor, 64 * EVENT_BYTES):
                self._count += len(data) // EVENT_BYTES
        return self._count

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.descriptor)
