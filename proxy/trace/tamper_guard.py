"""Looks after those who watch a server: whether strace still can, and whether the server goes for it, or for us.

A server that runs as the same user can signal its watchers, look into them and
open what they have open. What can be refused is refused elsewhere (`tracer.REFUSED`,
`forbid_looks`); the rest is noticed here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.sandbox.process_reaper import PR_SET_DUMPABLE, descendants, prctl
from proxy.trace.capability import Capability

if TYPE_CHECKING:
    from proxy.trace.capability import Observation

IN_OPEN = 0x20
EVENT_BYTES = 16
HOSTILE = frozenset({"kill", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"})
_TRACER = re.compile(rb"^TracerPid:\s*([0-9]+)$", re.MULTILINE)
_NUMBER = re.compile(r"-?[0-9]+")
_MEMORY = re.compile(r"/([0-9]+)(?:/task/[0-9]+)?/mem")


def forbid_inspection() -> None:
    """Let no other process of our user look into this one: neither its memory nor what it has open."""
    prctl(PR_SET_DUMPABLE, 0)


def find_tracer(root: int) -> int:
    """Return the process that traces what runs below `root`, by the kernel's word; 0 where there is none."""
    return next((found for pid in sorted(descendants(root)) if (found := _tracer_of(pid))), 0)


def _tracer_of(pid: int) -> int:
    try:
        found = _TRACER.search(Path(f"/proc/{pid}/status").read_bytes())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def tracer_state(pid: int) -> str | None:
    """Say what is wrong with a tracer: `stopped`, `traced` itself, or `gone`; None where it runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "gone"
    if state in "ZX":
        return "gone"
    return "traced" if _tracer_of(pid) else "stopped" if state in "Tt" else None


def attacks_watcher(seen: Observation, guards: frozenset[int]) -> bool:
    """Return whether something was done, or tried, to one of `guards`: processes, and groups of them as negatives."""
    path = seen.path or ""
    if seen.capability is Capability.KERNEL:
        return seen.action in HOSTILE and not guards.isdisjoint(map(int, _NUMBER.findall(path)))
    found = _MEMORY.search(path) if path.endswith("/mem") else None
    return found is not None and seen.ok and int(found[1]) in guards


def modifies(seen: Observation, places: tuple[str, ...]) -> bool:
    """Return whether one of `places`, or what is below one, was written or deleted, or was to be."""
    path = seen.path
    if path is None or seen.capability not in (Capability.FS_WRITE, Capability.FS_DELETE):
        return False
    return any(path == place or path.startswith(f"{place}/") for place in places)


class OpenCounter:
    """Counts how often a file is opened, by whatever name. None are seen where the system has no more inotify.

    `descriptor` can be waited on; those that nobody has counted yet are told as one.
    """

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        libc.inotify_add_watch(self.descriptor, os.fsencode(path), IN_OPEN)
        self._count = 0

    def count(self) -> int:
        """Return how often it was opened so far."""
        with contextlib.suppress(OSError):
            while data := os.read(self.descriptor, 64 * EVENT_BYTES):
                self._count += len(data) // EVENT_BYTES
        return self._count

    def close(self) -> None:
        """Count no more."""
        with contextlib.suppress(OSError):
            os.close(self.descriptor)
