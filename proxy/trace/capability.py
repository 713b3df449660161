"""Observations of what a server did, independent of the tracer. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Capability(StrEnum):
    """A kind of effect that a program can have outside of itself."""

    FS_READ = "fs.read"
    FS_WRITE = "fs.write"
    FS_DELETE = "fs.delete"
    NET_CONNECT = "net.connect"
    NET_DNS = "net.dns"
    NET_LISTEN = "net.listen"
    IPC_UNIX = "ipc.unix"
    PROC_EXEC = "proc.exec"
    EXEC_FILELESS = "exec.fileless"
    KERNEL = "kernel"

    # Enum's own is Python code, and this is called for every observation.
    __hash__ = str.__hash__


class Observation(NamedTuple):
    """One thing that a program did, or tried to do (`error` is set)."""

    capability: Capability
    action: str  # open, write, rename, connect, send, …
    pid: int
    time: float
    line: str
    path: str | None = None  # absolute, links resolved where the kernel did; an abstract unix socket's begins with `@`
    peer: str | None = None  # `host:port`
    name: str | None = None  # that was looked up
    argv: tuple[str, ...] = ()
    data: bytes = b""  # the beginning of what was sent
    error: str | None = None
    lineage: tuple[int, ...] = ()  # the thread that did it, the one that started it, and so on

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def target(self) -> str:
        """What it was done to: a name, a path, a peer or a command line."""
        return self.name or self.path or self.peer or " ".join(self.argv)


def text(data: bytes) -> str:
    """Decode a path or argument; bytes that are no UTF-8 stay readable and distinct."""
    return data.decode("utf-8", "backslashreplace")
