"""What a server was seen to do, in words that do not depend on how it was seen. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Capability(StrEnum):
    """A kind of thing that a program can do to what is outside of it."""

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

    # An enum's own is written in Python; this one is asked for with everything that is seen.
    __hash__ = str.__hash__


class Observation(NamedTuple):
    """One thing that a program did, or tried to do (`error` is set).

    `action` is what it did in short: open, write, rename, connect, send, …
    `path` is absolute; where the kernel said where a link led, it is that. An
    abstract unix socket's begins with `@`. `peer` is `host:port`, `name` the
    name that was looked up, `data` the beginning of what was sent.
    `lineage` is the thread that did it, the one that started it, and so on.
    """

    capability: Capability
    action: str
    pid: int
    time: float
    line: str
    path: str | None = None
    peer: str | None = None
    name: str | None = None
    argv: tuple[str, ...] = ()
    data: bytes = b""
    error: str | None = None
    lineage: tuple[int, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it did it, and did not only try."""
        return self.error is None

    @property
    def target(self) -> str:
        """What it was done to, in one text."""
        return self.name or self.path or self.peer or " ".join(self.argv)


def text(data: bytes) -> str:
    """Return bytes of a path or argument as text; what is no UTF-8 stays readable and distinct."""
    return data.decode("utf-8", "backslashreplace")
