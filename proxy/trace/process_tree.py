"""Follows which thread belongs to which process, and which thread started which. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.trace.strace import Ended, Superseded, Syscall, Unfinished

STARTERS = frozenset({"clone", "clone3", "fork", "vfork"})
MAX_DEPTH = 64
MAX_STARTERS = 1 << 16


@dataclass(slots=True)
class Process:
    """What the threads of a process share; `memory` are its memfd descriptors, `handles` its pidfds."""

    cwd: bytes
    parent: Process | None = None
    memory: dict[int, bytes] = field(default_factory=dict[int, bytes])
    handles: dict[int, int] = field(default_factory=dict[int, int])

    def memory_file(self, number: int) -> bytes | None:
        """Return the memfd behind a descriptor, also an inherited one."""
        process: Process | None = self
        for _ in range(MAX_DEPTH):
            if process is None or number in process.memory:
                break
            process = process.parent
        return process.memory.get(number) if process else None

    def resolve(self, path: bytes, folder: bytes | None = None) -> bytes:
        return posixpath.normpath(posixpath.join(folder or self.cwd, path)).replace(b"//", b"/", 1)


class ProcessTree:
    """The threads of one trace. `cwd` is the working directory of the first."""

    def __init__(self, cwd: bytes = b"/") -> None:
        self._cwd = cwd
        self._threads: dict[int, Process] = {}
        self._starters: dict[int, int] = {}
        self._starting: dict[int, Unfinished] = {}

    def process(self, pid: int) -> Process:
        found = self._threads.get(pid)
        if found is not None:
            return found
        # A child's first calls can be printed before its parent's clone returns (after vfork always): a thread that
        # is not known yet is the child of the latest clone that has not returned.
        if not self._starting:
            return self._threads.setdefault(pid, Process(self._cwd))
        starter, begun = next(reversed(self._starting.items()))
        return self._start(starter, pid, begun.arguments)

    def ancestry(self, pid: int) -> tuple[int, ...]:
        """Return a thread, the thread that started it, and so on."""
        found = [pid]
        while (pid := self._starters.get(pid, 0)) and len(found) < MAX_DEPTH:
            found.append(pid)
        return tuple(found)

    def knows(self, pid: int) -> bool:
        return pid in self._threads

    def begins(self, call: Unfinished) -> None:
        """Note that a thread has called clone or fork, and the call has not returned."""
        if call.name in STARTERS:
            self.process(call.pid)
            self._starting.pop(call.pid, None)
            self._starting[call.pid] = call

    def started(self, call: Syscall) -> None:
        """Note that clone or fork has returned."""
        self._starting.pop(call.pid, None)
        child = call.value if call.value is not None and call.ok else 0
        if child > 0 and (child not in self._threads or self._starters.get(child) != call.pid):
            self._start(call.pid, child, call.arguments)

    def _start(self, starter: int, pid: int, arguments: str) -> Process:
        parent = self._threads.get(starter) or self._threads.setdefault(starter, Process(self._cwd))
        known = self._threads.get(pid)
        if "CLONE_THREAD" in arguments:
            process = parent
        elif known is not None and known is not parent:
            process, known.parent = known, parent
        else:
            process = Process(parent.cwd, parent)
        self._threads[pid] = process
        self._starters.pop(pid, None)
        self._starters[pid] = starter
        if len(self._starters) > MAX_STARTERS:
            del self._starters[next(iter(self._starters))]
        return process

    def ended(self, event: Ended) -> None:
        self._threads.pop(event.pid, None)  # its number may come again; its children still need `_starters`
        self._starting.pop(event.pid, None)

    def superseded(self, event: Superseded) -> None:
        """Note that a thread that executed a program continues under its process's number."""
        self._threads.pop(event.by, None)
        self._starting.pop(event.pid, None)
